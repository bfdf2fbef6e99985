// Package daemon makes a program a daemon like those of Open vSwitch: pidfile, detaching, supervision, and a control
// socket for ovs-appctl(8). The options are those of «Daemon Options» in ovs-vswitchd(8).
//
// A Go program cannot fork, so --detach and --monitor run the program's own binary again with the same arguments:
//
//	launcher        returns when the daemon is ready, or with its exit status
//	  └ monitor     with --monitor: restarts the worker after a crash
//	      └ worker  holds the pidfile and the control socket, and does the work
//
// Each waits at a pipe until the next one is ready. Code of main before Run is executed by each of them; code for the
// worker alone belongs into Serve.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// defaultPidfile is the value of --pidfile without a file name. It is no plausible relative file name.
const defaultPidfile = "<default>"

// Options are a program's daemon options.
type Options struct {
	Pidfile          string `long:"pidfile" optional:"yes" optional-value:"<default>" unquote:"false" value-name:"FILE" description:"write the process ID to FILE and lock it; without =FILE, to PROGRAM.pid in the run directory"`
	OverwritePidfile bool   `long:"overwrite-pidfile" description:"with --pidfile, start even if another process holds it"`
	Detach           bool   `long:"detach" description:"run in the background; return when the daemon is ready"`
	NoChdir          bool   `long:"no-chdir" description:"with --detach, keep the working directory instead of changing to /"`
	Monitor          bool   `long:"monitor" description:"start the daemon again when it crashes"`
	Unixctl          string `long:"unixctl" unquote:"false" value-name:"SOCKET" description:"make the control socket SOCKET instead of PROGRAM.PID.ctl in the run directory; none makes no socket"`
}

// A Command is a command of the control socket. Run gets between Min and Max arguments and returns the output of
// ovs-appctl. It may be called concurrently. A log's own Command is the same type.
type Command = struct {
	Name, Usage string
	Min, Max    int
	Run         func(args []string) (string, error)
}

// Hidden as Usage keeps a command out of list-commands: a former name.
const Hidden = "-"

// A Service describes a daemon for Run.
type Service struct {
	Name    string // of the program, as in ovs-appctl -t NAME
	Version string
	Options Options
	// Arguments are those of the process if secrets among them are hidden; else they may be empty.
	Arguments Arguments
	Commands  []Command
	Log       *logrus.Entry // nil is silent

	// Serve does the work until ctx ends. It calls ready at least once, when the daemon does its work; the launcher
	// waits for that.
	Serve func(ctx context.Context, ready func()) error
}

// Run serves s in this process or, with --detach or --monitor, in another one. It returns nil if the service ended
// without an error, because of ctx or because of the command "exit", and in the launcher when the daemon is ready. If
// a daemon in another process failed, the error is an ExitError.
func Run(ctx context.Context, s Service) error {
	if s.Log == nil {
		s.Log = logrus.NewEntry(&logrus.Logger{}) // writes nothing
	}
	part, parent := takePart()
	switch {
	case part == launcher && s.Options.Detach:
		return launch(ctx, s)
	case part != worker && s.Options.Monitor:
		return supervise(ctx, s, parent)
	}
	return serve(ctx, s, part, parent)
}

// ExitError is the exit status of a daemon in another process. The daemon has printed its error itself.
type ExitError struct{ Status int }

// Error implements error.
func (e ExitError) Error() string { return fmt.Sprintf("the daemon ended with status %d", e.Status) }

// ExitStatus is the exit status for this process.
func (e ExitError) ExitStatus() int { return e.Status }

// Silent means that the error was printed already.
func (e ExitError) Silent() bool { return true }

// serve is the worker: it holds the pidfile and the control socket while Serve does its work.
func serve(ctx context.Context, s Service, part role, parent *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if part == worker && s.Options.Monitor {
		debug.SetTraceback("crash") // a panic ends in SIGABRT, a crash for the monitor
	}
	if why := os.Getenv(restartedEnv); why != "" {
		_ = os.Unsetenv(restartedEnv)
		s.Log.Warnf("restarted by the monitor: %s", why)
	}

	if err := makeRunDir(); err != nil {
		return err
	}
	pid, err := takePidfile(s.pidfile(), s.Options.OverwritePidfile)
	if err != nil {
		return err
	}
	if pid.stale > 0 { // that process was killed without a cleanup
		_ = os.Remove(s.defaultSocket(pid.stale))
	}
	ctl, err := s.listen(cancel)
	if err != nil {
		pid.remove()
		return err
	}
	defer ctl.close() // the last step: it answers the command "exit"
	defer pid.remove()

	var detached atomic.Bool
	ready := sync.OnceFunc(func() {
		if part != launcher && s.Options.Detach {
			leaveTerminal(s.Options.NoChdir)
			detached.Store(true)
		}
		tell(parent)
		Ready()
	})
	stop := context.AfterFunc(ctx, func() { notify(sd.SdNotifyStopping) })
	defer stop()
	err = s.Serve(ctx, ready)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil && detached.Load() {
		s.Log.Errorf("terminating: %v", err) // a detached daemon has no stderr
	}
	return err
}

// leaveTerminal detaches the process from its session and working directory. Failures do no harm.
func leaveTerminal(noChdir bool) {
	if !noChdir {
		_ = os.Chdir("/")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for fd := range 3 {
		_ = unix.Dup3(int(null.Fd()), fd, 0)
	}
}

// tell tells the waiting parent, if there is one, that the daemon is ready.
func tell(parent *os.File) {
	if parent == nil {
		return
	}
	_, _ = parent.Write([]byte{1}) // the parent may have been killed
	_ = parent.Close()
}

// runDir is the directory of pidfiles and control sockets.
func runDir() string { return cmp.Or(os.Getenv("OVS_RUNDIR"), defaultRunDir) }

const defaultRunDir = "/var/run/openvswitch"

// makeRunDir creates the default run directory, in case Open vSwitch, its owner, was not started since the boot. A
// directory from OVS_RUNDIR must exist.
func makeRunDir() error {
	if os.Getenv("OVS_RUNDIR") != "" {
		return nil
	}
	if err := os.Mkdir(defaultRunDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the run directory: %w", err)
	}
	return nil
}

// inRunDir resolves a relative file name in the run directory. The result is absolute, to stay valid after a change
// of the working directory.
func inRunDir(file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(runDir(), file)
	}
	return absolute(file)
}

// absolute returns file's absolute name, or file if the working directory was deleted.
func absolute(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

// pidfile is the absolute name of the pidfile, "" for none.
func (s Service) pidfile() string {
	switch s.Options.Pidfile {
	case "":
		return ""
	case defaultPidfile:
		return inRunDir(s.Name + ".pid")
	}
	return inRunDir(s.Options.Pidfile)
}

// writable returns an error unless files can be created in the directory of file.
func writable(file string) error {
	dir := filepath.Dir(file)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "stat", Path: dir, Err: unix.ENOTDIR}
	}
	if err == nil {
		if errno := unix.Access(dir, unix.W_OK|unix.X_OK); errno != nil {
			err = &os.PathError{Op: "access", Path: dir, Err: errno}
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("making %s: %w", file, err)
}
