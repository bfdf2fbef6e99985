// Package cli runs a program's command line: it parses the options into a go-flags struct, runs the program or the
// chosen command, and turns its error into one line per fault and an exit status.
//
// Option names may be abbreviated as long as they are unique, as with Python's argparse and getopt_long(3). An
// optional value of an option must follow "=", as in Open vSwitch.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit statuses.
const (
	statusDone  = 0
	statusFail  = 1 // the command failed
	statusUsage = 2 // wrong command line
)

// IO holds a program's output streams: results go to Out, errors to Err.
type IO struct{ Out, Err io.Writer }

// OS returns stdout and stderr of the process.
func OS() IO { return IO{os.Stdout, os.Stderr} }

// A Runner is a program, or one command of a program. Its fields are its options. Run returns when its work is done
// or ctx has ended. An error is printed after the program's name and makes the exit status 1, unless it has one of
// these methods:
//
//	ExitStatus() int // another status
//	Silent() bool    // true: already printed
//
// Each part of errors.Join has a line of its own.
type Runner interface {
	Run(ctx context.Context, io IO) error
}

// An exampler is a Runner with examples for --help.
type exampler interface{ Example() string }

// Base makes a struct a go-flags command. Embed it in every command.
type Base struct{}

// Execute implements flags.Commander. Main calls Run instead.
func (Base) Execute([]string) error { return nil }

// A Program describes a program for Main.
type Program struct {
	Name    string
	Version string
	Summary string // one sentence or a paragraph, for --help
	Example string // command lines, for --help; one a line
	// Options is a pointer to a go-flags struct. It is a Runner, or has fields with a "command" tag for Runners. A
	// command may have a method Example() string for its own --help.
	Options any
	// Groups are further options, for --help in groups with headings.
	Groups []Group
	// Values gets the values of the options in Groups, by name, of those given. It may be nil if there are no Groups.
	Values map[string]string
	// OneDash accepts long options with one dash, too, as Go's package flag does: -mtu=1400, -mtu 1400, -show-config.
	// Booleans may then have a value: =true or =false.
	OneDash bool
}

// A Group is a part of the options with a heading.
type Group struct {
	Name    string
	Options []Option
}

// An Option is an option of a Group. If it is given several times, the last value counts.
type Option struct {
	Name    string // without dashes
	Value   string // a word for the value in --help
	Text    string // for --help
	Boolean bool   // without a value it is "true"
	Hidden  bool   // not in --help
}

// Main parses args, runs the program until it is done or SIGINT, SIGTERM or SIGHUP arrives, and returns the exit
// status: 0 done, 1 failed, 2 wrong command line, or the ExitStatus of its error.
func Main(p Program, args []string, stdio IO) int {
	runner, err := parse(p, args)
	var h help
	switch {
	case errors.As(err, &h):
		fmt.Fprintln(stdio.Out, strings.TrimRight(string(h), "\n"))
		return statusDone
	case err != nil:
		fmt.Fprintf(stdio.Err, "%s: %v\n", p.Name, err)
		return statusUsage
	}
	ctx, stop := untilSignal()
	defer stop()
	err = runner.Run(ctx, stdio)
	if err == nil {
		return statusDone
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	report(stdio.Err, p.Name, err)
	return status(err)
}

// untilSignal returns a context that ends on SIGINT, SIGTERM or SIGHUP. Signals ignored at the start, as by nohup(1),
// stay ignored. A second ^C ends the process at once.
func untilSignal() (context.Context, context.CancelFunc) {
	var signals []os.Signal
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	if len(signals) == 0 {
		return context.WithCancel(context.Background()) // Notify without signals means all of them
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, func() { signal.Reset(syscall.SIGINT) })
	return ctx, stop
}

// report prints err, each line after the program's name.
func report(w io.Writer, name string, err error) {
	if j, ok := err.(interface{ Unwrap() []error }); ok && isJoin(err, j.Unwrap()) {
		for _, e := range j.Unwrap() {
			report(w, name, e)
		}
		return
	}
	var s interface{ Silent() bool }
	if errors.As(err, &s) && s.Silent() {
		return
	}
	text := strings.TrimRight(err.Error(), "\n")
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0 {
		text += refused
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(w, "%s: %s\n", name, line)
	}
}

// refused is the remedy for root without a permission.
const refused = `: the kernel refuses this to root, as with SELinux, AppArmor, or a container without the capability: see "ausearch -m avc" or dmesg, and allow it`

// isJoin reports whether err is only a list of its parts, as from errors.Join, without a text of its own, as from
// fmt.Errorf with several %w.
func isJoin(err error, parts []error) bool { return err.Error() == errors.Join(parts...).Error() }

func status(err error) int {
	var s interface{ ExitStatus() int }
	if errors.As(err, &s) {
		return s.ExitStatus()
	}
	return statusFail
}
