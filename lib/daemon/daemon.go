// Package daemon makes a program behave as the daemons of Open vSwitch do:
// pidfile, detaching, supervision, and a control socket that ovs-appctl(8)
// talks to. The options are those of «Daemon Options» in ovs-vswitchd(8).
//
// A Go program cannot fork, so --detach and --monitor run the program's own
// binary again with the same arguments:
//
//	launcher        returns when the daemon is ready, or with its exit status
//	  └ monitor     with --monitor: starts the worker again when it crashed
//	      └ worker  holds the pidfile and the control socket, and does the work
//
// Each waits at a pipe for the next one's readiness. What main does before Run
// happens in each of them; what must happen once belongs into Serve.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// defaultPidfile is what --pidfile without a value means. No relative file name
// that a user would choose looks like it.
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

// A Command is one that the control socket offers. Run gets between Min and Max
// arguments and returns what ovs-appctl prints; it may be called several times
// at once. A log's own Command is the same type.
type Command = struct {
	Name, Usage string
	Min, Max    int
	Run         func(args []string) (string, error)
}

// Hidden is the Usage of a command that list-commands does not list: a former name.
const Hidden = "-"

// A Service is what Run runs.
type Service struct {
	Name     string // of the program, as in ovs-appctl -t NAME
	Version  string
	Options  Options
	Commands []Command
	Log      *logrus.Entry // nil is silent

	// Serve does the work until ctx ends. It calls ready, once or more often,
	// when the daemon does its work; until then a launcher waits.
	Serve func(ctx context.Context, ready func()) error
}

// Run serves s in this process or, as its options say, in another one. It
// returns nil when the service ended because ctx did, was told to by "exit", or
// of itself without an error; and, in the process that --detach leaves, when
// the daemon is ready. If a daemon in another process failed, the error is
// an ExitError.
func Run(ctx context.Context, s Service) error {
	if s.Log == nil {
		s.Log = silentLog()
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

func silentLog() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// ExitError says that the daemon, another process, ended with a status. It has
// printed the reason itself.
type ExitError struct{ Status int }

// Error implements error.
func (e ExitError) Error() string { return fmt.Sprintf("the daemon ended with status %d", e.Status) }

// ExitStatus is the status that this process should end with.
func (e ExitError) ExitStatus() int { return e.Status }

// Silent says that there is nothing to print.
func (e ExitError) Silent() bool { return true }

// serve is the worker: it holds the pidfile and the control socket while Serve
// does its work.
func serve(ctx context.Context, s Service, part role, parent *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if part == worker && s.Options.Monitor {
		debug.SetTraceback("crash") // a panic ends in SIGABRT, which a monitor knows
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
	defer pid.remove()
	if pid.stale > 0 { // that process was killed and could not tidy up
		_ = os.Remove(s.defaultSocket(pid.stale))
	}
	ctl, err := s.listen(cancel)
	if err != nil {
		return err
	}
	defer ctl.close()

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
		s.Log.Errorf("terminating: %v", err) // nobody would see it on stderr
	}
	return err
}

// leaveTerminal detaches the process from what it was started in. A failure
// would leave it where it is, which harms nobody.
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

// runDir is where pidfiles and control sockets are.
func runDir() string { return cmp.Or(os.Getenv("OVS_RUNDIR"), defaultRunDir) }

const defaultRunDir = "/var/run/openvswitch"

// makeRunDir makes the default run directory if Open vSwitch, which owns it, has not
// been started since the boot. A directory of OVS_RUNDIR must exist.
func makeRunDir() error {
	if os.Getenv("OVS_RUNDIR") != "" {
		return nil
	}
	if err := os.Mkdir(defaultRunDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the run directory: %w", err)
	}
	return nil
}

// inRunDir makes a relative file name one of the run directory, absolute, so
// that it means the same after a change of the working directory.
func inRunDir(file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(runDir(), file)
	}
	return absolute(file)
}

// absolute is file's absolute name, or file where the working directory is gone.
func absolute(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

// pidfile is the file's absolute name, or "" for none.
func (s Service) pidfile() string {
	switch s.Options.Pidfile {
	case "":
		return ""
	case defaultPidfile:
		return inRunDir(s.Name + ".pid")
	}
	return inRunDir(s.Options.Pidfile)
}

// writable returns an error that names the directory of file unless files can
// be made there.
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
