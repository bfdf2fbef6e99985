package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Background starts this program again with other arguments, in a session of its own without a terminal, so that it
// survives a hangup. Its output is appended to logFile. Under systemd it becomes a transient unit: systemd kills all
// processes of a service, or of an ssh session, together.
func Background(logFile string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	command := append([]string{self}, args...)
	if underSystemd() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), transientTimeout, fmt.Errorf("killed, because it was not done within %v", transientTimeout))
		defer cancel()
		err = transient(ctx, logFile, command)
	} else {
		err = detached(logFile, command)
	}
	if err != nil {
		return fmt.Errorf("starting %s in the background: %w", args[0], err)
	}
	return nil
}

// underSystemd reports whether systemd is the init process (sd_booted(3)) and shares the network namespace of this
// process. A container may have another one.
func underSystemd() bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	first, err2 := os.Readlink("/proc/1/ns/net")
	return err == nil && err2 == nil && ours == first
}

// transientTimeout bounds systemd-run. It waits for systemd to start the program: systemd may hang or be busy at boot.
const transientTimeout = time.Minute

// transient starts a command as a transient unit of systemd. The unit has no default dependencies: early at boot it
// would wait for units that may wait for the caller. Its name is unique: a process may start several.
func transient(ctx context.Context, logFile string, command []string) error {
	args := []string{"--quiet", "--collect", fmt.Sprintf("--unit=%s-%s-%d-%d", filepath.Base(command[0]), command[1], os.Getpid(), time.Now().UnixNano()),
		"--property=Type=exec", "--property=DefaultDependencies=no", "--property=WorkingDirectory=/",
		"--property=StandardOutput=append:" + logFile, "--property=StandardError=append:" + logFile}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "OVS_") {
			args = append(args, "--setenv="+v)
		}
	}
	cmd := exec.CommandContext(ctx, "systemd-run", append(append(args, "--"), command...)...)
	cmd.WaitDelay = time.Second // for children of a script: they keep its output open
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("systemd-run: %w", context.Cause(ctx))
	case errors.As(err, &exit):
		return fmt.Errorf("systemd-run: %s", strings.TrimSpace(string(out)))
	}
	return err
}

// detached starts a command in a session of its own.
func detached(logFile string, command []string) error {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // or its process stays defunct, if this one lives longer
	return nil
}
