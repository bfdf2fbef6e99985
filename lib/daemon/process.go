package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A role is the part of a process in the daemon. A parent passes it to its child in the environment, beside a pipe.
type role string

const (
	launcher role = "" // started by a user
	monitor  role = "monitor"
	worker   role = "worker"
)

const (
	roleEnv      = "OVN_K8S_DAEMON_ROLE"
	restartedEnv = "OVN_K8S_DAEMON_RESTARTED" // reason of the restart, for the log
	parentFD     = 3                          // the child's end of the pipe: exec.Cmd.ExtraFiles[0]
)

// takePart returns this process's role, and the pipe for telling its parent that it is ready. It removes both from
// the environment, so that children do not inherit them.
func takePart() (role, *os.File) {
	part := role(os.Getenv(roleEnv))
	_ = os.Unsetenv(roleEnv)
	if part != monitor && part != worker {
		return launcher, nil
	}
	unix.CloseOnExec(parentFD)
	return part, os.NewFile(parentFD, "parent")
}

// A child is the program run again in another role.
type child struct {
	process  *os.Process
	ready    chan bool  // gets true when it is ready, false if it ends before
	ended    chan error // gets the result of Wait
	termSent bool       // SIGTERM was sent
}

// start runs the program again. session gives the child a session of its own, out of reach of the terminal's ^C and
// hangup. why is the reason of a restart, for the child's log.
func (s Service) start(part role, session bool, why string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the program: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", part, err)
	}
	cmd := exec.Command(self)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), roleEnv+"="+string(part))
	if why != "" {
		cmd.Env = append(cmd.Env, restartedEnv+"="+why)
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	if len(s.Arguments.Secrets) > 0 {
		hidden, err := s.Arguments.file()
		if err != nil {
			return nil, errors.Join(err, r.Close(), w.Close())
		}
		defer hidden.Close()
		cmd.Env, cmd.ExtraFiles = append(cmd.Env, hiddenEnv+"=1"), append(cmd.ExtraFiles, hidden)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("starting the %s: %w", part, err)
	}
	c := &child{process: cmd.Process, ready: make(chan bool, 1), ended: make(chan error, 1)}
	go func() {
		n, _ := r.Read(make([]byte, 1))
		_ = r.Close()
		c.ready <- n == 1
	}()
	go func() { c.ended <- cmd.Wait() }()
	return c, nil
}

// untilReady waits until c is ready or has ended; then err is the result of Wait. The end of ctx ends c, too.
func (c *child) untilReady(ctx context.Context) (ready bool, err error) {
	stop := ctx.Done()
	for {
		select {
		case ok := <-c.ready:
			if ok {
				return true, nil
			}
			c.ready = nil // it closed its end: it is about to end
		case err := <-c.ended:
			if c.ready != nil && <-c.ready { // it was ready before
				c.ended <- err
				return true, nil
			}
			return false, err
		case <-stop:
			stop = nil
			c.terminate()
		}
	}
}

// untilEnd waits until c has ended. The end of ctx ends c, too.
func (c *child) untilEnd(ctx context.Context) error {
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		c.terminate()
		return <-c.ended
	}
}

func (c *child) terminate() {
	if !c.termSent {
		_ = c.process.Signal(unix.SIGTERM)
	}
	c.termSent = true
}

// launch starts the daemon in the background and returns when it is ready.
func launch(ctx context.Context, s Service) error {
	part := worker
	if s.Options.Monitor {
		part = monitor
	}
	c, err := s.start(part, true, "")
	if err != nil {
		return err
	}
	ready, err := c.untilReady(ctx)
	if ready {
		return nil
	}
	return verdict(err).result()
}

// supervise is the monitor: it starts the worker and restarts it after a crash. Otherwise it returns the worker's
// result.
func supervise(ctx context.Context, s Service, parent *os.File) error {
	ready := sync.OnceFunc(func() {
		if s.Options.Detach {
			leaveTerminal(true) // relative paths on the command line must mean the same to the next worker
		}
		tell(parent)
	})
	everReady, why := false, ""
	var last time.Time // of the last restart
	for {
		c, err := s.start(worker, false, why)
		if err != nil {
			return err
		}
		isReady, err := c.untilReady(ctx)
		if isReady {
			everReady = true
			ready()
			err = c.untilEnd(ctx)
		}
		v := verdict(err)
		if v.signal != 0 { // it had no chance to clean up
			_ = os.Remove(s.defaultSocket(c.process.Pid))
		}
		if !v.crash() || !everReady || ctx.Err() != nil {
			if v.signal != 0 && everReady && s.Options.Detach {
				s.Log.Errorf("pid %d died, %s, exiting", c.process.Pid, v) // a detached daemon has no stderr
			}
			return v.result()
		}
		why = fmt.Sprintf("pid %d died, %s", c.process.Pid, v)
		if !pause(ctx, restartDelay(last, time.Now())) {
			return nil
		}
		last = time.Now()
	}
}

// restartInterval is the least time between two restarts.
const restartInterval = 10 * time.Second

// restartDelay is the delay of a restart at now after a previous one at last; zero last means none.
func restartDelay(last, now time.Time) time.Duration {
	return max(0, last.Add(restartInterval).Sub(now))
}

// pause waits for d, and returns false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// An outcome is the end of a child.
type outcome struct {
	status int
	signal syscall.Signal // 0: it exited
	err    error          // Wait failed
}

// verdict interprets the result of exec.Cmd.Wait.
func verdict(err error) outcome {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return outcome{err: err}
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	if !ok {
		return outcome{err: err}
	}
	if ws.Signaled() {
		return outcome{signal: ws.Signal()}
	}
	return outcome{status: ws.ExitStatus()}
}

// restartStatus is the exit status with which a daemon asks for a restart.
const restartStatus = 5

// crash reports whether the monitor restarts the daemon: after the signals listed in ovs-vswitchd(8), «--monitor»,
// and after SIGKILL, the signal of the kernel's OOM killer.
func (o outcome) crash() bool {
	switch o.signal {
	case unix.SIGABRT, unix.SIGALRM, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGPIPE,
		unix.SIGSEGV, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGKILL:
		return true
	}
	return o.signal == 0 && o.status == restartStatus
}

// String formats the outcome, e.g. "killed (SIGSEGV)".
func (o outcome) String() string {
	if o.signal != 0 {
		return fmt.Sprintf("killed (%s)", unix.SignalName(o.signal))
	}
	return fmt.Sprintf("exit status %d", o.status)
}

// result is the error with which the parent ends as its child did.
func (o outcome) result() error {
	switch {
	case o.err != nil:
		return fmt.Errorf("waiting for the daemon: %w", o.err)
	case o.signal != 0:
		return fmt.Errorf("the daemon died: %s", o)
	case o.status != 0:
		return ExitError{o.status}
	}
	return nil
}
