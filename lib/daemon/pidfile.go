package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A pidfile is held while its process lives. As in Open vSwitch, the file's existence proves nothing; a living
// process has it locked with fcntl(2), and ovs-appctl and other starts ask for the owner of the lock. Closing any
// descriptor of the file in this process releases the lock, so nothing else here may open it.
type pidfile struct {
	path  string
	file  *os.File
	stale int // process ID in the stale pidfile replaced by this one, or 0
}

// takePidfile creates and locks path for this process, unless it is "". It fails if another process holds it, unless
// overwrite is set.
func takePidfile(path string, overwrite bool) (*pidfile, error) {
	if path == "" {
		return &pidfile{}, nil
	}
	if err := writable(path); err != nil {
		return nil, err
	}
	tmp := fmt.Sprintf("%s.tmp%d", path, os.Getpid())
	f, err := writeLocked(tmp)
	if err != nil {
		return nil, fmt.Errorf("creating pidfile: %w", err)
	}
	p := &pidfile{path: path, file: f}
	if overwrite {
		err = os.Rename(tmp, path)
	} else {
		err = p.install(tmp)
	}
	if err != nil {
		_ = os.Remove(tmp)
		_ = f.Close()
		return nil, err
	}
	return p, nil
}

// ErrHeld is the error of a file held by another process.
var ErrHeld = errors.New("already running")

// Hold makes this process the only one with a file, until release or its end. The file is a pidfile: an error ErrHeld names the
// process that has it.
func Hold(path string) (release func(), err error) {
	p, err := takePidfile(path, false)
	if err != nil {
		return nil, err
	}
	return p.remove, nil
}

// writeLocked creates a file with our process ID, locked before other processes can know its name.
func writeLocked(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err = lock(f); err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		_ = os.Remove(path)
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// install renames tmp to the pidfile, unless a living process holds it. Several starts may race here; each step is
// atomic.
func (p *pidfile) install(tmp string) error {
	for {
		err := os.Link(tmp, p.path)
		if err == nil {
			return os.Remove(tmp)
		}
		if !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("creating pidfile: %w", err)
		}
		done, err := p.replaceStale(tmp)
		if done || err != nil {
			return err
		}
	}
}

// replaceStale replaces the pidfile of a dead process by tmp. It returns false if the file changed in between: try
// again.
func (p *pidfile) replaceStale(tmp string) (bool, error) {
	old, err := os.OpenFile(p.path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("checking pidfile: %w", err)
	}
	defer old.Close()
	if err := lock(old); err != nil {
		return false, held(old, p.path, err)
	}
	// The lock is ours: its process is dead, and no other start can be here, too.
	if !sameFile(old, p.path) {
		return false, nil
	}
	p.stale = readPID(old)
	if err := os.Rename(tmp, p.path); err != nil {
		return false, fmt.Errorf("replacing stale pidfile: %w", err)
	}
	return true, nil
}

// held is the error for a file locked by another process, worded as in Open vSwitch.
func held(f *os.File, path string, err error) error {
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	who := unix.Flock_t{Type: unix.F_WRLCK}
	pid := readPID(f)
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &who); err == nil && who.Type != unix.F_UNLCK && who.Pid > 0 {
		pid = int(who.Pid)
	}
	return fmt.Errorf("%s: %w as pid %d, aborting", path, ErrHeld, pid)
}

func lock(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// readPID is the process ID in a pidfile, or 0.
func readPID(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 64))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// remove deletes the pidfile, unless another process has overwritten it, and releases the lock.
func (p *pidfile) remove() {
	if p.file == nil {
		return
	}
	if sameFile(p.file, p.path) {
		_ = os.Remove(p.path)
	}
	_ = p.file.Close()
}
