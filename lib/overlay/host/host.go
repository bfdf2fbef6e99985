// Package host is a command's connection to the Open vSwitch of its host, with the configuration.
package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Host is the host of a command.
type Host struct {
	Config config.Config
	Switch *vswitch.Switch
	RunDir string // Open vSwitch's
	Report *progress.Reporter
}

// Settings are the settings of a host, such as settings.Source.
type Settings interface {
	// RunDir is the directory of Open vSwitch's sockets.
	RunDir() (string, error)
	// Load resolves the configuration. With an error it returns the valid part.
	Load(ctx context.Context, sw *vswitch.Switch) (config.Config, error)
}

// Open connects to the local Open vSwitch and reads the configuration. With a bad configuration it returns the host and
// the error.
func Open(ctx context.Context, s Settings, report *progress.Reporter) (*Host, error) {
	rundir, err := s.RunDir()
	if err != nil {
		return nil, err
	}
	h := &Host{RunDir: rundir, Report: report}
	err = report.Stage(ctx, "connecting to Open vSwitch", func(ctx context.Context) (err error) {
		h.Switch, err = vswitch.Connect(ctx, rundir, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	h.Config, err = s.Load(ctx, h.Switch)
	report.WarnAll(h.Config.Ignored)
	return h, err
}

// Close ends the connection.
func (h *Host) Close() { h.Switch.Close() }

// CheckTunnels warns of an MTU too large for tunnels. It is for commands: a gateway helper checks this by itself, again
// whenever an interface changes.
func (h *Host) CheckTunnels() error {
	var failed error
	for _, t := range h.Config.Tunnels(func(a netip.Addr) (name string, mtu int) {
		name, mtu, err := link.NICWith(a)
		failed = errors.Join(failed, err)
		return name, mtu
	}) {
		if err := t.Check(h.Config.MTU); err != nil && failed == nil {
			h.Report.Warn("%v", err)
		}
	}
	return failed
}

// SpareConnections configures Open vSwitch to keep connections alive during restarts of OVN's and Open vSwitch's
// daemons.
func (h *Host) SpareConnections(ctx context.Context) error {
	_, err1 := h.Switch.Controller().AvoidZeroSNAT(ctx)
	_, err2 := h.Switch.Controller().KeepFlows(ctx)
	return errors.Join(err1, err2)
}

// CheckDatapath returns an error if this host cannot have br-int with its datapath, nor tunnels unless known: a host that
// was a node or a gateway before goes on without them, and a warning tells.
func (h *Host) CheckDatapath(ctx context.Context, known bool) error {
	kind, err := h.Switch.PreferredDatapath(ctx)
	if err != nil {
		return err
	}
	offered, err := h.Switch.DatapathTypes(ctx)
	if err != nil {
		return err
	}
	if err := config.CheckDatapath(kind, offered, link.HasOpenVSwitch); err != nil {
		return err
	}
	err = h.Config.CheckGeneve(kind, link.HasGeneve)
	if err != nil && known {
		h.Report.Warn("%v", err)
		return nil
	}
	return err
}

// NeedIPv6 returns an error if there are IPv6 subnets, and the kernel has no IPv6.
func NeedIPv6(subnets []netip.Prefix) error {
	six := func(p netip.Prefix) bool { return p.Addr().Is6() }
	if !slices.ContainsFunc(subnets, six) || link.HasIPv6() {
		return nil
	}
	return fmt.Errorf("subnets %s need IPv6, which this host's kernel does not have: boot it without ipv6.disable=1", ipnet.Join(subnets))
}
