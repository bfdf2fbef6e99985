package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// statusInterval is the time between two looks of STATUS at restarting programs.
const statusInterval = 250 * time.Millisecond

// A restarting is a failure of STATUS that a restart of a program causes, too.
type restarting struct{ failure *types.Error }

func (r restarting) Error() string { return r.failure.Error() }

func (r restarting) Unwrap() error { return r.failure }

// mayPass reports after a pause whether STATUS, which began at a time and has failed with err, is to be executed again: see
// protocol.StatusPatience.
func mayPass(ctx context.Context, err error, began time.Time) bool {
	if !errors.As(err, new(restarting)) || time.Since(began) >= protocol.StatusPatience {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(statusInterval):
		return true
	}
}

// status returns an error if this host cannot serve ADD, a restarting if that may pass within seconds. It sends no requests to
// servers: runtimes call it every few seconds on every node.
func (n *node) status(ctx context.Context, _ *skel.CmdArgs, _ *types.PluginConf) error {
	if n.sw == nil {
		return restarting{types.NewError(protocol.Limited, "Open vSwitch is not available", oneLine(n.problem))}
	}
	if n.problem != nil {
		return types.NewError(protocol.Unavailable, "the configuration is bad", oneLine(n.problem))
	}
	if _, err := n.bridgeDatapath(ctx); err != nil {
		return restarting{types.NewError(protocol.Limited, "Open vSwitch is not ready", oneLine(err))}
	}
	if n.config.OVNRemote == "" {
		return types.NewError(protocol.Unavailable, "ovn-controller has no database", "external_ids:ovn-remote is not set in the table Open_vSwitch")
	}
	if err := n.checkAPIServer(time.Now()); err != nil {
		return err
	}
	if n.pods != nil {
		if err := n.pods.Refused(); err != nil {
			return restarting{types.NewError(protocol.Unavailable, "the pods of this host are not known", oneLine(err))}
		}
	}
	return n.daemonsRun()
}

// checkAPIServer returns an error if the settings of the API server cannot work. A kubeconfig replaces them.
func (n *node) checkAPIServer(now time.Time) error {
	if n.config.Kubeconfig != "" {
		return nil
	}
	if n.config.APIServer == "" {
		return types.NewError(protocol.Unavailable, config.ErrNoAPIServer.Error(), "external_ids:k8s-api-server is not set in the table Open_vSwitch")
	}
	if t, ok := settings.ReadToken(n.config); ok && t.Ended(now) {
		return types.NewError(protocol.Unavailable, "the token for the API server has ended", t.Problem(now))
	}
	return nil
}

// daemonsRun returns an error if ovs-vswitchd or ovn-controller is stopped.
func (n *node) daemonsRun() error {
	stopped := vswitch.Stopped(n.config.RunDir)
	if len(stopped) == 0 {
		return nil
	}
	d := stopped[0]
	details := fmt.Sprintf("no process answers at its control socket %s: start %s, then pods get their network", d.Socket, d.Program)
	return restarting{types.NewError(protocol.Limited, d.Program+" is stopped", details)}
}
