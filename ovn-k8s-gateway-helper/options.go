package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/gateway"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
)

type options struct {
	Bridge            string `long:"physical-bridge" value-name:"BRIDGE" description:"bridge that the host shares with its gateway router"`
	Interface         string `long:"physical-interface" value-name:"NIC" description:"network interface in that bridge"`
	Node              string `long:"node-name" value-name:"NAME" description:"this node in Kubernetes; without, the one that the management port is for"`
	NodePortAddresses string `long:"nodeport-addresses" value-name:"CIDR,CIDR" description:"serve NodePorts at these addresses of the node only; without, at all but loopback ones"`
	Remove            bool   `long:"remove" description:"take away the flows of the bridge and the rules of the host, and exit"`

	Settings settings.Flags `group:"Configuration"`
	Daemon   daemon.Options `group:"Daemon"`
	Log      vlog.Options   `group:"Logging"`
}

// misuse is an error of the command line.
type misuse string

func (m misuse) Error() string { return string(m) }
func (misuse) ExitStatus() int { return 2 }

// Run implements cli.Runner.
func (o *options) Run(ctx context.Context, io cli.IO) error {
	if (o.Bridge == "") != (o.Interface == "") {
		return misuse("--physical-bridge and --physical-interface belong together: give both, or neither on a node that shares no NIC")
	}
	addrs, err := o.addresses()
	if err != nil {
		return err
	}
	if err := settings.UseDirectories(o.Settings.Map()); err != nil {
		return err
	}
	log, err := vlog.New(gateway.Program, o.Log, io.Err)
	if err != nil {
		return err
	}
	defer log.Close()
	log.TakeKlog()
	h := &gateway.Helper{Options: gateway.Options{
		Flags: o.Settings.Map(), Log: log.Module,
		Bridge: o.Bridge, Interface: o.Interface, Node: o.Node, NodePortAddresses: addrs,
		Status: o.Daemon.Status(gateway.Program, io.Err),
	}}
	switch {
	case o.Settings.ShowConfig:
		return h.ShowConfig(ctx, io.Out)
	case o.Remove:
		return h.Remove(ctx)
	}
	return daemon.Run(ctx, daemon.Service{
		Name: gateway.Program, Version: version, Options: o.Daemon,
		Commands: append(h.Commands(), log.Commands()...),
		Log:      log.Module("daemon"),
		Serve:    h.Run,
	})
}

func (o *options) addresses() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for word := range strings.SplitSeq(o.NodePortAddresses, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, misuse(fmt.Sprintf("--nodeport-addresses: %q is not a subnet; want ADDRESS/LENGTH, as in 10.0.0.0/8", word))
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
