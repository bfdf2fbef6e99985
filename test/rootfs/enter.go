package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindsKey is the environment variable with the directories to bind, separated by
// colons: first Go's.
const bindsKey = "OVNK8S_TEST_ROOTFS_BINDS"

// path are the directories of programs, after Go's.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A mount is one argument list of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
}

// enter makes a directory the root file system of these namespaces, runs a command in
// it, and returns its exit status. As the first process it reaps orphans.
func enter(root string, args []string) (int, error) {
	source, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	binds := strings.Split(os.Getenv(bindsKey), ":")
	if err := prepareRoot(root, binds); err != nil {
		return 0, err
	}
	if err := pivot(root); err != nil {
		return 0, err
	}
	if err := os.Chdir(source); err != nil {
		return 0, err
	}
	for _, k := range []string{inside, bindsKey} {
		_ = os.Unsetenv(k) // fails for invalid names only
	}
	if err := os.Setenv("PATH", filepath.Join(binds[0], "bin")+":"+path); err != nil {
		return 0, err
	}
	return runAsInit(args)
}

// prepareRoot mounts the file systems of the command. Only root and binds outlive it.
func prepareRoot(root string, binds []string) error {
	// Not a chroot: nsenter(1) of the test hosts would leave it.
	mounts := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{root, root, "", unix.MS_BIND},
		{"proc", root + "/proc", "proc", 0},
		{"/sys", root + "/sys", "", unix.MS_BIND | unix.MS_REC},
		{"/dev", root + "/dev", "", unix.MS_BIND | unix.MS_REC},
		{"tmpfs", root + "/run", "tmpfs", 0},
		{"tmpfs", root + "/tmp", "tmpfs", 0},
	}
	for _, dir := range binds {
		mounts = append(mounts, mount{dir, root + dir, "", unix.MS_BIND})
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := os.Chmod(root+"/tmp", 0o777|fs.ModeSticky); err != nil {
		return err
	}
	return copyFiles(root)
}

// copied are this machine's files that the command needs: names of hosts, and trusted CAs, of which one may be a proxy's.
var copied = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"}

// copyFiles copies these files, if there are any.
func copyFiles(root string) error {
	for _, file := range copied {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(root+file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes a mounted directory the root directory.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // see pivot_root(2)
		return fmt.Errorf("changing the root directory: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root directory: %w", err)
	}
	return os.Chdir("/")
}

// runAsInit runs a command, and reaps all processes until it ends.
func runAsInit(args []string) (int, error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(program, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", args[0], err)
	}
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("waiting for %s: %w", args[0], err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}
