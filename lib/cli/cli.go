// Package cli runs a program's command line: it parses a go-flags struct, runs
// the program or the chosen command, and turns its error into one line per
// fault and an exit status.
//
// Option names may be abbreviated while they stay unique, as Python's argparse
// and getopt_long(3) have it; an option whose value is optional takes it only
// after "=", as in Open vSwitch.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit statuses.
const (
	statusDone  = 0
	statusFail  = 1 // the command could not do its work
	statusUsage = 2 // the command line is wrong
)

// IO is what a program prints to: results to Out, faults to Err.
type IO struct{ Out, Err io.Writer }

// OS is the process's own IO.
func OS() IO { return IO{os.Stdout, os.Stderr} }

// A Runner is a program, or one command of a program. Its fields are its
// options. Run returns when its work is done or ctx has ended. An error is
// printed after the program's name and makes the exit status 1, unless it has
//
//	ExitStatus() int // another status
//	Silent() bool    // true: its text has been shown already
//
// Of errors.Join, each part has a line of its own.
type Runner interface {
	Run(ctx context.Context, io IO) error
}

// An exampler is a Runner that shows how it is used.
type exampler interface{ Example() string }

// Base makes a struct a go-flags command. Embed it in every command.
type Base struct{}

// Execute implements flags.Commander. Main calls Run instead.
func (Base) Execute([]string) error { return nil }

// A Program is what Main runs.
type Program struct {
	Name    string
	Version string
	Summary string // one sentence or a paragraph, for --help
	Example string // command lines, for --help; one a line
	// Options is a pointer to a go-flags struct. It is a Runner, or has fields
	// with a "command" tag that are. A command may have a method
	// Example() string for its own --help.
	Options any
}

// Main parses args, runs the program until it is done or told to stop by
// SIGINT, SIGTERM or SIGHUP, and returns its exit status: 0 done, 1 could not,
// 2 wrong command line, or what its error says.
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

// untilSignal returns a context that ends when the process is told to stop. A
// signal that the process was started to ignore, as by nohup(1), stays ignored.
// A second ^C ends the process at once.
func untilSignal() (context.Context, context.CancelFunc) {
	var heard []os.Signal
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			heard = append(heard, s)
		}
	}
	if len(heard) == 0 {
		return context.WithCancel(context.Background()) // Notify without signals means all of them
	}
	ctx, stop := signal.NotifyContext(context.Background(), heard...)
	context.AfterFunc(ctx, func() { signal.Reset(syscall.SIGINT) })
	return ctx, stop
}

// report prints err, each of its lines after the program's name.
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
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		fmt.Fprintf(w, "%s: %s\n", name, line)
	}
}

// isJoin reports whether err says no more than its parts do, as errors.Join's
// result does and that of fmt.Errorf with several %w does not.
func isJoin(err error, parts []error) bool { return err.Error() == errors.Join(parts...).Error() }

func status(err error) int {
	var s interface{ ExitStatus() int }
	if errors.As(err, &s) {
		return s.ExitStatus()
	}
	return statusFail
}
