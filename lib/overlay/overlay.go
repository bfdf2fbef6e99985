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

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
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
	*progress.Reporter
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
}

func newSession(c Command) *session {
	return &session{Command: c, Reporter: progress.New(c.Wait, c.Out, c.Err)}
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
		s.Continue()
	}
	return err
}

// openHost connects to the local Open vSwitch and reads the configuration.
func (s *session) openHost(ctx context.Context) error {
	var err error
	if s.rundir, err = settings.RunDir(s.Settings); err != nil {
		return err
	}
	err = s.Stage(ctx, "connecting to Open vSwitch", func(ctx context.Context) (err error) {
		s.sw, err = vswitch.Connect(ctx, s.rundir, nil)
		return err
	})
	if err != nil {
		return err
	}
	s.config, err = settings.Load(ctx, s.Settings, s.sw)
	for _, what := range s.config.Ignored {
		s.Warn("%s", what)
	}
	return err
}

// openNB connects to the Northbound database.
func (s *session) openNB(ctx context.Context) error {
	if len(s.config.NB) == 0 {
		return config.ErrNoNB
	}
	return s.Stage(ctx, "connecting to the Northbound database at "+strings.Join(s.config.NB, ", "), s.connectNB)
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
		if s.temp, err = os.MkdirTemp("", progress.Program); err != nil {
			return nil, err
		}
		files.CACert = filepath.Join(s.temp, "ca.pem") // read for each connection
	}
	return ovsdb.TLSConfig(ctx, files, s.config.NB, s.Errors())
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
