// Package files changes files of a host, each atomically, and shows the changes before.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// An Edit is one change of a file.
type Edit struct {
	Path string
	Text string // the whole file
	Link string // or the target of a symbolic link
	Copy string // or the program to copy
	Gone bool   // or remove it
}

// String describes the edit, as in "write /etc/network/interfaces".
func (e Edit) String() string {
	switch {
	case e.Gone:
		return "remove " + e.Path
	case e.Link != "":
		return fmt.Sprintf("link %s to %s", e.Path, e.Link)
	case e.Copy != "":
		return fmt.Sprintf("copy %s to %s", e.Copy, e.Path)
	}
	return "write " + e.Path
}

// Describe has a line for each edit.
func Describe(edits []Edit) (lines []string) {
	for _, e := range edits {
		lines = append(lines, e.String())
	}
	return lines
}

// needed reports whether the edit would change the file.
func (e Edit) needed() (bool, error) {
	var is string
	var err error
	if e.Link != "" {
		is, err = os.Readlink(e.Path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return is != e.Link, err
	}
	if e.Copy != "" {
		same, err := isCopy(e.Path, e.Copy)
		return !same, err
	}
	text, err := os.ReadFile(e.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return !e.Gone, nil
	}
	return e.Gone || string(text) != e.Text, err
}

// isCopy reports whether a path is a regular executable file with the contents of another.
func isCopy(path, of string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != programMode {
		return false, err
	}
	is, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	want, err := os.ReadFile(of)
	return bytes.Equal(is, want), err
}

// programMode is the mode of programs.
const programMode = 0o755

// Pending returns the edits with an effect.
func Pending(all []Edit) ([]Edit, error) {
	var out []Edit
	for _, e := range all {
		needed, err := e.needed()
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", e.Path, err)
		}
		if needed {
			out = append(out, e)
		}
	}
	return out, nil
}

// leftover begins the names of temporary files. Their process holds a lock on them (flock(2)) until it ends.
const leftover = ".ovn-k8s-"

// Sweep removes the temporary files of killed processes from directories.
func Sweep(dirs ...string) error {
	for _, dir := range dirs {
		all, err := filepath.Glob(filepath.Join(dir, leftover+"*"))
		if err != nil {
			return err
		}
		for _, path := range all {
			if unlock, err := lock(path); err == nil {
				err = os.RemoveAll(path)
				unlock()
				if err != nil {
					return fmt.Errorf("removing what a killed run has left: %w", err)
				}
			}
		}
	}
	return nil
}

// lock locks a file or directory, or fails at once if another process holds the lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Apply makes the edits in order. Each is atomic: no reader sees half of a file.
func Apply(edits []Edit) error {
	for _, e := range edits {
		if err := e.apply(); err != nil {
			return fmt.Errorf("trying to %s: %w", e, withoutTemporary(err))
		}
	}
	return nil
}

// withoutTemporary is err without the name of a temporary file: the next try has another one.
func withoutTemporary(err error) error {
	var rename *os.LinkError
	var file *fs.PathError
	switch {
	case errors.As(err, &rename):
		return rename.Err
	case errors.As(err, &file) && strings.Contains(file.Path, leftover):
		return file.Err
	}
	return err
}

func (e Edit) apply() error {
	if e.Gone {
		if err := os.Remove(e.Path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(e.Path), 0o755); err != nil {
		return err
	}
	switch {
	case e.Link != "":
		return e.replace(func(tmp string) error { return os.Symlink(e.Link, tmp) })
	case e.Copy != "":
		return e.replace(func(tmp string) error { return copyProgram(tmp, e.Copy) })
	}
	return e.replaceFile()
}

func copyProgram(path, of string) error {
	in, err := os.Open(of)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, programMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(programMode), out.Sync(), out.Close())
}

// makeLocked makes a file or directory and locks it. If a sweep removes it before the lock, it makes another one.
func makeLocked(make func() (path string, err error)) (path string, unlock func(), err error) {
	for range 10 {
		if path, err = make(); err != nil {
			return "", nil, err
		}
		if unlock, err = lock(path); err != nil {
			continue
		}
		if _, err = os.Lstat(path); err == nil {
			return path, unlock, nil
		}
		unlock()
	}
	return "", nil, err
}

// replace calls make for a temporary path and renames the result onto e.Path. A link at e.Path is replaced itself.
func (e Edit) replace(make func(path string) error) error {
	dir, unlock, err := makeLocked(func() (string, error) { return os.MkdirTemp(filepath.Dir(e.Path), leftover) })
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer unlock()
	tmp := filepath.Join(dir, "new")
	if err := make(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, e.Path)
}

// replaceFile renames a new file onto the path, or onto the target of a link there. The file keeps its mode and
// owner.
func (e Edit) replaceFile() error {
	path, err := filepath.EvalSymlinks(e.Path)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = e.Path, nil
	}
	if err != nil {
		return err
	}
	name, unlock, err := makeLocked(func() (string, error) {
		f, err := os.CreateTemp(filepath.Dir(path), leftover)
		if err != nil {
			return "", err
		}
		return f.Name(), f.Close()
	})
	if err != nil {
		return err
	}
	defer os.Remove(name) // no effect once it is renamed
	defer unlock()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(e.Text); err != nil {
		return err
	}
	if err := errors.Join(likeOld(f, path), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// likeOld gives f the mode and owner of the file at path, or mode 0644 without such a file.
func likeOld(f *os.File, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.Chmod(0o644)
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		err = f.Chown(int(st.Uid), int(st.Gid))
	}
	return errors.Join(err, f.Chmod(info.Mode().Perm()))
}
