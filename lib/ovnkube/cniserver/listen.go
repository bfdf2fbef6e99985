package cniserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	dirMode    = 0o700
	socketMode = 0o600
	// dialTimeout bounds the search for another server.
	dialTimeout = time.Second
)

// listen listens at a socket that only root can reach. It takes over a socket without a server. release lets another
// server start.
func listen(ctx context.Context, path string) (l net.Listener, release func(), err error) {
	dir, err := ownDirectory(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	done := false
	defer func() {
		if !done {
			_ = dir.Close()
		}
	}()
	if err := vacate(ctx, dir, path); err != nil {
		return nil, nil, err
	}
	if l, err = (&net.ListenConfig{}).Listen(ctx, "unix", path); err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil { // the directory has kept others out
		_ = l.Close()
		return nil, nil, err
	}
	done = true
	return l, func() { _ = dir.Close() }, nil
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
