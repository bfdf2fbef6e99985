package cniserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	dirMode    = 0o700
	socketMode = 0o600
	// dialTimeout bounds the search for another server.
	dialTimeout = time.Second
)

// An entrance is a socket of the server.
type entrance struct {
	*net.UnixListener
	path  string
	file  fs.FileInfo // at path
	leave func()      // closes it, removes the file, and lets another server start
}

// listen listens at a socket that only root can reach. It takes over a socket without a server.
func listen(ctx context.Context, path string) (*entrance, error) {
	dir, err := ownDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	e := &entrance{path: path}
	if err := e.open(ctx, dir); err != nil {
		_ = dir.Close()
		return nil, err
	}
	e.leave = sync.OnceFunc(func() {
		_ = e.Close()
		if e.there() { // not another server's
			_ = os.Remove(path)
		}
		_ = dir.Close()
	})
	return e, nil
}

// open makes the socket in a directory.
func (e *entrance) open(ctx context.Context, dir *os.File) error {
	if err := vacate(ctx, dir, e.path); err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", e.path)
	if err != nil {
		return err
	}
	e.UnixListener = l.(*net.UnixListener)
	e.SetUnlinkOnClose(false)
	if err = os.Chmod(e.path, socketMode); err == nil { // the directory has kept others out
		e.file, err = os.Lstat(e.path)
	}
	if err != nil {
		_ = e.Close()
	}
	return err
}

// there reports whether the socket is at its path.
func (e *entrance) there() bool {
	now, err := os.Lstat(e.path)
	return err == nil && os.SameFile(now, e.file)
}

// ownDirectory makes a directory for the socket, closed to all but this user, and opens it.
func ownDirectory(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok {
		return nil, fmt.Errorf("%s is not a directory: remove it", path)
	}
	if int(status.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to user %d, and must belong to user %d: remove it", path, status.Uid, os.Geteuid())
	}
	if err := os.Chmod(path, dirMode); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// vacate removes a socket without a server. The lock of the directory keeps two servers from starting at the same time; it
// is held until the directory is closed.
func vacate(ctx context.Context, dir *os.File, path string) error {
	err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		pid, _ := server(ctx, path)
		return served(path, pid)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", dir.Name(), err)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is not a socket: remove it", path)
	}
	if pid, alive := server(ctx, path); alive {
		return served(path, pid)
	}
	return os.Remove(path)
}

// served is the error if another process serves the socket; pid is 0 if not known.
func served(path string, pid int32) error {
	if pid == 0 {
		return fmt.Errorf("%s: another process serves it: stop it first", path)
	}
	return fmt.Errorf("%s: another process serves it (PID %d): stop it first", path, pid)
}

// server reports whether a process serves a socket, and its PID, 0 if not known: unix(7), SO_PEERCRED.
func server(ctx context.Context, path string) (pid int32, alive bool) {
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return 0, errors.Is(err, syscall.EAGAIN) // its queue is full
	}
	defer func() { _ = c.Close() }()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, true
	}
	_ = raw.Control(func(fd uintptr) { // fails for a closed connection only
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = peer.Pid
		}
	})
	return pid, true
}
