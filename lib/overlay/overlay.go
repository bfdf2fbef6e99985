// Package overlay is the one-shot commands that build the cluster's network:
// MasterInit, MinionInit and NodeRemove, GatewayInit and GatewayRemove.
//
// Each works in three steps. First everything is looked at and checked, and all
// problems are reported together; nothing has been changed by then. Then one
// transaction changes the Northbound database. Then this host follows, with the
// CNI configuration last, since it is what makes a kubelet call its node ready.
//
// All of it says how things should be and changes what differs. So a command
// that was killed is repeated, and a repeated command changes nothing. The
// database goes first because only it knows whether a subnet is free: a host is
// not touched for a node that the cluster cannot have.
package overlay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

const (
	// program begins the lines on standard error.
	program = "ovn-k8s-overlay"
	// done is what the initializing commands print. Scripts may match it: it is
	// the originals' text.
	done = "Initialization complete."

	// stageTimeout bounds each wait for a daemon.
	stageTimeout = 30 * time.Second
	// slow is how long a stage may take before it is named on standard error.
	slow = 2 * time.Second
)

// Errors whose texts scripts may match: they are the originals'.
var (
	//lint:ignore ST1005 the original's text
	errEmpty    = errors.New("Arguments should be non-null")
	errNoRouter = errors.New("K8S_CLUSTER_ROUTER not found: run master-init first")
)

// A Command is what all commands are asked for.
type Command struct {
	// Settings are those of the command line, see settings.Flags.Map.
	Settings map[string]string
	// NodeName is the node's name as Kubernetes has it, in any case.
	NodeName string
	// DryRun prints what would be changed, one change a line, and changes
	// nothing.
	DryRun bool
	// Wait waits for Open vSwitch and the Northbound database as long as it takes, and
	// tells systemd. It is for boot.
	Wait bool
	// Out gets the result, Err warnings and what takes long.
	Out, Err io.Writer
}

// A session is a command at work.
type session struct {
	Command
	rundir string // Open vSwitch's
	config config.Config
	sw     *vswitch.Switch
	nb     *ovsdb.DB
	temp   string // a directory for the time of a dry run
	// only is the node whose rows are read of the Northbound database; all are if it is empty.
	only      string
	conflicts int // how often only's change has failed

	warnings []string
}

// newSession begins a command.
func newSession(c Command) *session {
	c.Err = &sharedWriter{w: c.Err}
	return &session{Command: c}
}

// A sharedWriter is one that may be written to while a stage is waited for.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes to the writer that is shared.
func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// needRoot is an error unless this may change the host.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("this needs root: it works on interfaces and routes of the host")
}

// ShowConfig prints all settings and where each comes from. Settings that are
// bad are shown too, and named in the error.
func ShowConfig(ctx context.Context, c Command) error {
	s := newSession(c)
	defer s.close()
	err := s.openHost(ctx)
	if s.sw != nil {
		fmt.Fprint(c.Out, s.config.Show())
		s.goOn()
	}
	return err
}

// openHost connects to the local Open vSwitch and reads the configuration.
func (s *session) openHost(ctx context.Context) error {
	var err error
	if s.rundir, err = settings.RunDir(s.Settings); err != nil {
		return err
	}
	err = s.stage(ctx, "connecting to Open vSwitch", func(ctx context.Context) (err error) {
		s.sw, err = vswitch.Connect(ctx, s.rundir, nil)
		return err
	})
	if err != nil {
		return err
	}
	s.config, err = settings.Load(ctx, s.Settings, s.sw)
	for _, what := range s.config.Ignored {
		s.warn("%s", what)
	}
	return err
}

// openNB connects to the Northbound database.
func (s *session) openNB(ctx context.Context) error {
	if len(s.config.NB) == 0 {
		return config.ErrNoNB
	}
	return s.stage(ctx, "connecting to the Northbound database at "+strings.Join(s.config.NB, ", "), s.connectNB)
}

// connectNB connects to the Northbound database once. A former connection is closed.
func (s *session) connectNB(ctx context.Context) error {
	model, err := ovsdb.NBModel()
	if err != nil {
		return err
	}
	tls, err := s.tls(ctx)
	if err != nil {
		return err
	}
	nb, err := ovsdb.Open(ctx, ovsdb.Options{
		Name: "the Northbound database", Remotes: s.config.NB, TLS: tls, Model: model, Needs: "OVN 23.03",
		Unfollowed: s.only != "",
	})
	if err != nil {
		return err
	}
	if s.nb != nil {
		s.nb.Close()
	}
	s.nb = nb
	return nil
}

// tls reads the certificates. A CA certificate that has to be fetched first is
// not kept by a dry run.
func (s *session) tls(ctx context.Context) (*tls.Config, error) {
	files := ovsdb.Files{PrivateKey: s.config.NBPrivateKey, Certificate: s.config.NBCertificate, CACert: s.config.NBCACert}
	if _, err := os.Stat(files.CACert); err != nil && s.DryRun {
		if s.temp, err = os.MkdirTemp("", program); err != nil {
			return nil, err
		}
		files.CACert = filepath.Join(s.temp, "ca.pem") // read for each connection
	}
	return ovsdb.TLSConfig(ctx, files, s.config.NB, s.Err)
}

// close ends the connections.
func (s *session) close() {
	if s.temp != "" {
		_ = os.RemoveAll(s.temp) // one certificate in the directory for temporary files
	}
	if s.nb != nil {
		s.nb.Close()
	}
	if s.sw != nil {
		s.sw.Close()
	}
}

// warn notes something that the command goes on with. It is printed once the
// command is known to go on: where it fails, there is nothing but the reason.
func (s *session) warn(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// goOn prints the warnings.
func (s *session) goOn() {
	for _, w := range s.warnings {
		fmt.Fprintf(s.Err, "%s: warning: %s\n", program, w)
	}
	s.warnings = nil
}

// stage runs a part of the work that waits for others, for a limited time. If
// it takes long, a line says what is being waited for.
func (s *session) stage(ctx context.Context, what string, work func(context.Context) error) error {
	if s.Wait {
		return s.patiently(ctx, what, work)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stageTimeout, fmt.Errorf("no answer within %v", stageTimeout))
	defer cancel()
	printed := make(chan struct{})
	timer := time.AfterFunc(slow, func() {
		defer close(printed)
		fmt.Fprintf(s.Err, "%s: %s ...\n", program, what)
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

// finish says that all is done. A unit of type notify fails without that, if nothing was late.
func (s *session) finish() {
	fmt.Fprintln(s.Out, done)
	if s.Wait {
		daemon.Options{}.Status(program, s.Err)(done)
		daemon.Ready()
	}
}

// waitInterval is how long a command with Wait waits before it tries again.
const waitInterval = time.Second

// patiently is stage without a limit: what fails is tried again, unless waiting does not mend it. The
// reason is printed once, and systemd, if it waits for this process, starts what comes after it.
func (s *session) patiently(ctx context.Context, what string, work func(context.Context) error) error {
	status := daemon.Options{Detach: true}.Status(program, s.Err)
	said := ""
	try := func() error {
		err := s.bounded(ctx, work)
		if settings.IsWrong(err) || vswitch.IsConflict(err) {
			return backoff.Permanent(err)
		}
		return err
	}
	return backoff.RetryNotify(try, backoff.WithContext(backoff.NewConstantBackOff(waitInterval), ctx),
		func(err error, _ time.Duration) {
			if err.Error() != said {
				said = err.Error()
				status("waiting, " + what + ": " + said)
			}
			daemon.Ready()
		})
}

// bounded runs a part of the work for a limited time.
func (s *session) bounded(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stageTimeout, fmt.Errorf("no answer within %v", stageTimeout))
	defer cancel()
	return work(ctx)
}

// section prints a part of what a dry run shows.
func (s *session) section(title string, lines []string) {
	if len(lines) == 0 {
		lines = []string{"nothing to change"}
	}
	fmt.Fprintf(s.Out, "# %s\n%s\n", title, strings.Join(lines, "\n"))
}
