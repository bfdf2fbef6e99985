// Package build builds the programs of tests, and reports the progress of long
// builds.
package build

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// progressInterval is the time between two progress reports.
const progressInterval = 5 * time.Second

// A Target is a set of programs to build.
type Target struct {
	// Module is the module's directory in the repository: "." is the product.
	Module string
	// Packages are the programs' packages, such as "./cmd/kcluster".
	Packages []string
	// Subdir is the subdirectory of the programs' directory to build into.
	Subdir string
	// Flags and Env are additional flags of go build and variables of its
	// environment. Builds with other values do not share cached packages.
	Flags, Env []string
	// Log receives progress lines during a long build. It may be nil.
	Log func(line string)
}

// Run builds programs and returns their directory: $OVNK8S_TEST_BIN if set, else
// one in the user's cache directory. It takes about a second if nothing has
// changed. Several processes may call it concurrently.
func Run(ctx context.Context, t Target) (string, error) {
	dir, unlock, err := lockedDir()
	if err != nil {
		return "", err
	}
	defer unlock()
	root, err := rootDir(ctx)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, t.Subdir)
	if err := t.build(ctx, root, dir); err != nil {
		return "", fmt.Errorf("building %s: %w", strings.Join(t.Packages, " "), err)
	}
	return dir, nil
}

// Commit builds programs of another commit of this repository, once, and returns their directory. Packages are as in Target.
func Commit(ctx context.Context, commit string, packages ...string) (string, error) {
	dir, unlock, err := lockedDir()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir = filepath.Join(dir, "commit-"+commit)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	source, err := os.MkdirTemp("", "source")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	if err := checkOut(ctx, commit, source); err != nil {
		return "", err
	}
	if err := (Target{Packages: packages}).build(ctx, source, dir+".new"); err != nil {
		return "", fmt.Errorf("building %s of commit %s: %w", strings.Join(packages, " "), commit, err)
	}
	return dir, os.Rename(dir+".new", dir)
}

// checkOut writes the files of a commit to a directory.
func checkOut(ctx context.Context, commit, dir string) error {
	root, err := rootDir(ctx)
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "archive.tar")
	for _, args := range [][]string{{"git", "-C", root, "archive", "--output", archive, commit}, {"tar", "-x", "-f", archive, "-C", dir}} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("getting the files of commit %s: %w: %s", commit, err, out)
		}
	}
	return nil
}

// lockedDir is Dir for this process alone until it calls unlock.
func lockedDir() (dir string, unlock func(), err error) {
	if dir, err = Dir(); err != nil {
		return "", nil, err
	}
	unlock, err = Lock(filepath.Join(dir, "lock"))
	return dir, unlock, err
}

// Dir creates and returns the directory of test programs: see Run.
func Dir() (string, error) {
	dir := os.Getenv("OVNK8S_TEST_BIN")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil { // no home
			cache = filepath.Join(os.TempDir(), "cache")
		}
		dir = filepath.Join(cache, "ovn-k8s")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// Roots creates and returns the directory of root file systems of test/rootfs: $OVNK8S_TEST_ROOTS, or one in the user's cache
// directory. Each has the name of its release of Debian.
func Roots() (string, error) {
	dir := os.Getenv("OVNK8S_TEST_ROOTS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "ovn-k8s-roots")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// Lock waits for the lock on file.
func Lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	return func() { _ = f.Close() }, nil
}

// rootDir returns the repository's root directory. The working directory must be inside its main module.
func rootDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("looking for the source: not inside the module (%w)", err)
	}
	return filepath.Dir(mod), nil
}

// build runs go build.
func (t Target) build(ctx context.Context, root, dir string) error {
	args := append([]string{"build", "-v", "-o", dir + string(filepath.Separator)}, t.Flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.Packages...)...)
	cmd.Dir = filepath.Join(root, t.Module)
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), t.Env...)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	last := make(chan string, 1)
	go func() { last <- t.report(r) }()
	err := cmd.Run()
	_ = w.Close()
	if said := <-last; err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// report reads the output of go build -v, one line for each compiled package, logs
// progress, and returns the last few lines.
func (t Target) report(r io.Reader) string {
	began, logged := time.Now(), time.Now()
	var tail []string
	n := 0
	for lines := bufio.NewScanner(r); lines.Scan(); {
		n++
		if tail = append(tail, lines.Text()); len(tail) > 10 {
			tail = tail[1:]
		}
		if t.Log != nil && time.Since(logged) > progressInterval {
			logged = time.Now()
			t.Log(fmt.Sprintf("building %s: %d packages after %.0f s (%s)",
				strings.Join(t.Packages, " "), n, time.Since(began).Seconds(), lines.Text()))
		}
	}
	return strings.Join(tail, "\n")
}
