// Package progress tells people and systemd how a command gets on: warnings, the names of slow stages, the parts of a
// dry run, and the result.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/settings"
)

const (
	// Program is the prefix of lines on standard error.
	Program = "ovn-k8s-overlay"
	// done is the output of the initializing commands. Scripts may match it: it is the text of the Python era.
	done = "Initialization complete."

	// stageTimeout bounds each wait for a daemon.
	stageTimeout = 30 * time.Second
	// slow is the time after which a stage is named on standard error.
	slow = 2 * time.Second
)

// A Reporter prints the progress of one command.
type Reporter struct {
	wait     bool // for daemons, without a limit
	out, err io.Writer
	warnings []string
	log      func(warning string) // instead of err; nil: none
}

// New returns a Reporter. With wait, stages have no limit, and systemd gets reports. out gets the result, err the
// warnings and the names of slow stages.
func New(wait bool, out, err io.Writer) *Reporter {
	return &Reporter{wait: wait, out: out, err: &sharedWriter{w: err}}
}

// Log returns a Reporter for a daemon, which hands each warning to warn. Stages and results are not reported.
func Log(warn func(text string)) *Reporter {
	return &Reporter{out: io.Discard, err: io.Discard, log: warn}
}

// Errors is the writer for warnings of other packages.
func (r *Reporter) Errors() io.Writer { return r.err }

// Print prints a part of the result.
func (r *Reporter) Print(text string) { fmt.Fprint(r.out, text) }

// Result prints a line of the result.
func (r *Reporter) Result(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// A sharedWriter serializes writes to w: a stage's timer writes at the same time as the command.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes to w.
func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// Warn records a warning. Continue prints it if the command continues: a failing command prints only its reason.
func (r *Reporter) Warn(format string, args ...any) {
	r.WarnAll([]string{fmt.Sprintf(format, args...)})
}

// WarnAll records warnings, each once: a plan may be made again.
func (r *Reporter) WarnAll(warnings []string) {
	for _, w := range warnings {
		if !slices.Contains(r.warnings, w) {
			r.warnings = append(r.warnings, w)
		}
	}
}

// Continue prints the warnings.
func (r *Reporter) Continue() {
	for _, w := range r.warnings {
		if r.log != nil {
			r.log(w)
			continue
		}
		fmt.Fprintf(r.err, "%s: warning: %s\n", Program, w)
	}
	r.warnings = nil
}

// Stage runs work that waits for other processes, for stageTimeout. After slow it prints the description of the
// work.
func (r *Reporter) Stage(ctx context.Context, what string, work func(context.Context) error) error {
	if r.wait {
		return r.patiently(ctx, what, work)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stageTimeout, fmt.Errorf("no answer within %v", stageTimeout))
	defer cancel()
	printed := make(chan struct{})
	timer := time.AfterFunc(slow, func() {
		defer close(printed)
		fmt.Fprintf(r.err, "%s: %s ...\n", Program, what)
	})
	err := work(ctx)
	if !timer.Stop() {
		<-printed
	}
	if err != nil && ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		err = fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	return err
}

// Finish prints the result. A unit of type notify fails without Ready, if nothing was late.
func (r *Reporter) Finish() {
	fmt.Fprintln(r.out, done)
	if r.wait {
		daemon.Options{}.Status(Program, r.err)(done)
		daemon.Ready()
	}
}

// waitInterval is the time between attempts of a command with Wait.
const waitInterval = time.Second

// patiently is Stage without a limit: it repeats failed work unless the error is permanent. It prints the reason
// once. If systemd waits for this process, it may then start the units ordered after it.
func (r *Reporter) patiently(ctx context.Context, what string, work func(context.Context) error) error {
	status := daemon.Options{Detach: true}.Status(Program, r.err)
	last := ""
	try := func() error {
		err := bounded(ctx, work)
		if settings.IsWrong(err) || confdb.IsConflict(err) {
			return backoff.Permanent(err)
		}
		return err
	}
	return backoff.RetryNotify(try, backoff.WithContext(backoff.NewConstantBackOff(waitInterval), ctx),
		func(err error, _ time.Duration) {
			if reason := reconcile.Reason(err); reason != last {
				last = reason
				status("waiting, " + what + ": " + err.Error())
			}
			daemon.Ready()
		})
}

// Retry runs work once, or with wait until it succeeds, each time for stageTimeout. Failed attempts leave no warnings.
func (r *Reporter) Retry(ctx context.Context, what string, work func(context.Context) error) error {
	if !r.wait {
		return work(ctx)
	}
	warnings := len(r.warnings)
	return r.patiently(ctx, what, func(ctx context.Context) error {
		r.warnings = r.warnings[:warnings]
		return work(ctx)
	})
}

// bounded runs work for at most stageTimeout.
func bounded(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stageTimeout, fmt.Errorf("no answer within %v", stageTimeout))
	defer cancel()
	return work(ctx)
}

// Section prints a part of a dry run's output.
func (r *Reporter) Section(title string, lines []string) {
	if len(lines) == 0 {
		lines = []string{"nothing to change"}
	}
	fmt.Fprintf(r.out, "# %s\n%s\n", title, strings.Join(lines, "\n"))
}
