package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Background runs this program again with other arguments, and goes on. It has a
// session of its own and no terminal, so that the loss of one does not end it.
// What it prints goes to the end of a file.
func Background(logFile string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("starting %s in the background: %w", args[0], err)
	}
	defer out.Close()
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s in the background: %w", args[0], err)
	}
	return cmd.Process.Release()
}
