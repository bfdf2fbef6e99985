// Package overlay is the one-shot commands that build the cluster's network: MasterInit, MinionInit and NodeRemove,
// GatewayInit and GatewayRemove.
//
// Each command has three steps. First it checks everything and reports all problems together; nothing has been
// changed by then. Then one transaction changes the Northbound database. Then this host follows, with the CNI
// configuration last, because the kubelet calls its node ready once it exists.
//
// All steps compare the desired state with the present one and change the differences. So a killed command can be
// repeated, and a repeated command changes nothing. The database goes first because only it knows whether a subnet
// is free: the host stays untouched if the cluster cannot have the node.
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
	// program is the prefix of lines on standard error.
	program = "ovn-k8s-overlay"
	// done is the output of the initializing commands. Scripts may match it: it is the text of the Python era.
	done = "Initialization complete."

	// stageTimeout bounds each wait for a daemon.
	stageTimeout = 30 * time.Second
	// slow is the time after which a stage is named on standard error.
	slow = 2 * time.Second
)

// The texts of these errors are those of the Python era: scripts may match them.
var (
	//lint:ignore ST1005 the original's text
	errEmpty    = errors.New("Arguments should be non-null")
	errNoRouter = errors.New("K8S_CLUSTER_ROUTER not found: run master-init first")
)

// A Command is the input common to all commands.
type Command struct {
	// Settings are the settings of the command line, see settings.Flags.Map.
	Settings map[string]string
	// NodeName is the node's name in Kubernetes, in upper or lower case.
	NodeName string
	// DryRun prints the changes, one a line, and makes none.
	DryRun bool
	// Wait waits for Open vSwitch and the Northbound database without a limit, and reports to systemd. It is for
	// boot.
	Wait bool
	// Out gets the result, Err warnings and the names of slow stages.
	Out, Err io.Writer
}

// A session is a running command.
type session struct {
	Command
	rundir string // Open vSwitch's
	config config.Config
	sw     *vswitch.Switch
	nb     *ovsdb.DB
	temp   string // a temporary directory of a dry run
	// only is the node to read from the Northbound database; empty means all rows.
	only string
	// read is the world read a moment ago, for the first change.
	read      *world
	conflicts int // failed changes of only

	warnings []string
}

func newSession(c Command) *session {
	c.Err = &sharedWriter{w: c.Err}
	return &session{Command: c}
}

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

// needRoot is an error without root's rights.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("this needs root: it works on interfaces and routes of the host")
}

// ShowConfig prints all settings and their sources. Bad settings are shown too, and named in the error.
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

// connectNB connects to the Northbound database once. It closes a former connection.
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
	s.nb, s.read = nb, nil
	return nil
}

// tls reads the certificates. A dry run does not keep a CA certificate fetched for it.
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

// warn records a warning. goOn prints it if the command continues: a failing command prints only its reason.
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

// stage runs work that waits for other processes, for stageTimeout. After slow it prints what, the description of
// the work.
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

// finish prints the result. A unit of type notify fails without Ready, if nothing was late.
func (s *session) finish() {
	fmt.Fprintln(s.Out, done)
	if s.Wait {
		daemon.Options{}.Status(program, s.Err)(done)
		daemon.Ready()
	}
}

// waitInterval is the time between attempts of a command with Wait.
const waitInterval = time.Second

// patiently is stage without a limit: it repeats failed work unless the error is permanent. It prints the reason
// once. If systemd waits for this process, it may then start the units ordered after it.
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

// bounded runs work for at most stageTimeout.
func (s *session) bounded(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stageTimeout, fmt.Errorf("no answer within %v", stageTimeout))
	defer cancel()
	return work(ctx)
}

// section prints a part of a dry run's output.
func (s *session) section(title string, lines []string) {
	if len(lines) == 0 {
		lines = []string{"nothing to change"}
	}
	fmt.Fprintf(s.Out, "# %s\n%s\n", title, strings.Join(lines, "\n"))
}
