package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"

	"golang.org/x/sys/unix"
)

// maxLocked is the maximum number of tries with a held lock.
const maxLocked = 20

// apt runs apt-get. It waits while another program holds a lock of apt or dpkg: the
// option DPkg::Lock::Timeout covers neither lists nor archives.
func apt(ctx context.Context, out io.Writer, args ...string) error {
	for tries := 1; ; tries++ {
		var printed bytes.Buffer
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		cmd.Stdout = out
		cmd.Stderr = io.MultiWriter(out, &printed)
		err := cmd.Run()
		if err == nil {
			return nil
		}
		lock := heldLock(printed.String())
		if lock == "" || tries == maxLocked {
			return fmt.Errorf("running apt-get %s: %w", args[0], err)
		}
		fmt.Fprintln(out, "waiting for", lock)
		if err := awaitLock(ctx, lock); err != nil {
			return err
		}
	}
}

// lockPattern matches apt's errors about locks: "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt)".
var lockPattern = regexp.MustCompile(`Could not get lock (\S+?)\.?(\s|$)`)

// heldLock returns the lock file in apt-get's error, or "".
func heldLock(stderr string) string {
	if m := lockPattern.FindStringSubmatch(stderr); m != nil {
		return m[1]
	}
	return ""
}

// awaitLock waits until no other process holds the lock (fcntl(2)), or ctx ends.
func awaitLock(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("waiting for apt's lock: %w", err)
	}
	free := make(chan error, 1)
	go func() {
		defer f.Close()
		free <- unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}()
	select {
	case err := <-free:
		if err != nil {
			return fmt.Errorf("waiting for apt's lock %s: %w", path, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
