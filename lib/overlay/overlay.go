// Package overlay is the one-shot commands that build the cluster's network. Run runs one: an Init of a master or
// minion, a Removal of a node, a Gateway, or a GatewayRemoval.
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
	"errors"
	"io"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/overlay/store"
)

// errEmpty has the text of the Python era: scripts may match it.
//
//lint:ignore ST1005 the original's text
var errEmpty = errors.New("Arguments should be non-null")

// Dependencies are the needs of all commands.
type Dependencies struct {
	// Settings are those of the host, see settings.Source.
	Settings host.Settings
	// DryRun prints the changes, one a line, and makes none.
	DryRun bool
	// Wait waits for Open vSwitch and the Northbound database without a limit, and reports to systemd. It is for
	// boot.
	Wait bool
	// Out gets the result, Err warnings and the names of slow stages.
	Out, Err io.Writer
}

// A Command is the input of one command.
type Command interface {
	run(ctx context.Context, s *session) error
}

// Run runs a command.
func Run(ctx context.Context, d Dependencies, c Command) error {
	s := &session{Reporter: progress.New(d.Wait, d.Out, d.Err), dryRun: d.DryRun, settings: d.Settings}
	defer s.close()
	return c.run(ctx, s)
}

// A session is a running command.
type session struct {
	*progress.Reporter
	dryRun   bool
	settings host.Settings
	host     *host.Host   // after openHost
	store    *store.Store // after openStore
}

// ShowConfig prints all settings and their sources. Bad settings are shown too, and named in the error.
type ShowConfig struct{}

func (ShowConfig) run(ctx context.Context, s *session) error {
	err := s.openHost(ctx)
	if s.host != nil {
		s.Print(s.host.Config.Show())
		s.Continue()
	}
	return err
}

// openHost connects to the local Open vSwitch and reads the configuration.
func (s *session) openHost(ctx context.Context) (err error) {
	s.host, err = host.Open(ctx, s.settings, s.Reporter)
	return err
}

// openWithNB is openHost for a command with a Northbound database and root's rights.
func (s *session) openWithNB(ctx context.Context) error {
	if err := link.NeedRoot(); err != nil {
		return err
	}
	err := s.openHost(ctx)
	if err == nil && len(s.host.Config.NB) == 0 {
		err = config.ErrNoNB
	}
	return err
}

// openStore connects to the Northbound database, and reads one node or, without a name, all.
func (s *session) openStore(ctx context.Context, node string) error {
	s.store = store.New(s.host.Config, s.Reporter, s.dryRun, node)
	return s.store.Open(ctx)
}

// close ends the connections.
func (s *session) close() {
	if s.store != nil {
		s.store.Close()
	}
	if s.host != nil {
		s.host.Close()
	}
}
