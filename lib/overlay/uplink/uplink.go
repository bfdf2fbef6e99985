// Package uplink is the host of a gateway: the port to the outside by a NIC, a shared bridge or the host's own routing. It
// needs no Northbound database.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Request asks this host to be a gateway.
type Request struct {
	membership.Gateway
	Force bool // go on where the host might lose its network
	// Instead says what to do instead of giving a NIC needed by the host; "": with the options of gateway-init.
	Instead string
	// Helped means that the gateway helper runs beside the caller: it keeps the host's end of a local gateway, except for
	// ports, and warns of firewalls.
	Helped bool
	// Formers are NICs that the gateway had before, for the case that Open vSwitch's database has lost them.
	Formers []Former
}

// An Uplink is the desired state of a gateway's host, and how far the host differs.
type Uplink struct {
	Gateway topology.Gateway // of the request, completed by the host

	host    *host.Host
	force   bool
	instead string // see Request
	helped  bool   // see Request; of a local gateway
	port    vswitch.GatewayPort
	local   *localEnd // nil in the other modes
	// former are the NICs of the gateway, with their configuration before.
	former  map[string]former
	changes []string // planned changes, for people
}

// New computes the desired state and checks it. It changes nothing.
func New(ctx context.Context, h *host.Host, r Request) (u *Uplink, err error) {
	err = h.Report.Retry(ctx, "looking at this host's network", func(ctx context.Context) (err error) {
		u, err = plan(ctx, h, r)
		return err
	})
	return u, err
}

// plan plans the changes on this host. Its network may be late.
func plan(ctx context.Context, h *host.Host, r Request) (u *Uplink, err error) {
	u = &Uplink{host: h, force: r.Force, instead: r.Instead, Gateway: r.Gateway.Gateway}
	g := &u.Gateway
	g.Chassis, g.MTU = h.Config.SystemID, h.Config.MTU
	if ips := h.Config.TunnelIPs(); len(ips) > 0 {
		g.Tunnel = ips[0] // the host is probed at one
	}
	if g.Interface != "" {
		if g.Interface, err = link.KernelName(g.Interface); err != nil {
			return nil, err
		}
	}
	u.port = vswitch.GatewayPort{Gateway: r.Name, IfaceID: names.ExternalPort(g.Interface, r.Name)}
	if u.former, err = findFormer(ctx, h.Switch, r.Name); err != nil {
		return nil, err
	}
	if g.Node, err = nodeHere(ctx, h.Switch); err != nil {
		return nil, err
	}
	switch g.Mode {
	case topology.Physical:
		err = u.planNIC(ctx, r.Formers)
	case topology.Bridge:
		err = u.planBridge(ctx)
	case topology.Local:
		if u.helped = r.Helped; !u.helped {
			warnOfFirewalls(ctx, h, r.Subnets)
		}
		err = u.planLocal(ctx, r.Subnets)
	}
	if g.Mode != topology.Physical { // for the gateway helper
		u.port.Pods, u.port.IPs = r.Subnets, g.IPs
	}
	if g.Mode != topology.Local {
		u.port.NextHops = g.NextHops
	}
	if err != nil {
		return nil, err
	}
	u.changes, err = h.Switch.PlanGatewayPort(ctx, u.port)
	return u, err
}

// nodeHere returns the node with its management port on this host, or "".
func nodeHere(ctx context.Context, sw *vswitch.Switch) (string, error) {
	all, err := sw.Interfaces(ctx)
	for _, i := range all {
		if node, ok := strings.CutPrefix(i.ExternalIDs[names.IfaceID], names.ManagementPort("")); ok && i.Bridge == names.IntegrationBridge && i.Type == "internal" {
			return node, nil
		}
	}
	return "", err
}

// hasAddresses checks that the physical IPs are addresses of the interface.
func (u *Uplink) hasAddresses(nic *link.NIC) error {
	var errs []error
	for _, ip := range u.Gateway.IPs {
		err := hasAddress(nic, ip, &u.Gateway)
		if err != nil && u.force {
			u.host.Report.Warn("%v", err)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hasAddress checks one physical IP. A NIC of the gateway's own may have no addresses of the family.
func hasAddress(nic *link.NIC, ip netip.Prefix, g *topology.Gateway) error {
	is := func(a netip.Prefix) bool { return a.Addr() == ip.Addr() }
	if slices.ContainsFunc(nic.Doubtful, is) {
		return fmt.Errorf("physical IP %s of %s may be another host's (ip address says dadfailed, or tentative): take it from the other and add it here again, or wait", ip, g.Interface)
	}
	family := slices.DeleteFunc(slices.Clone(nic.Addresses), func(a netip.Prefix) bool { return !ipnet.SameFamily(a.Addr(), ip.Addr()) })
	if slices.ContainsFunc(family, is) || len(family) == 0 && g.Mode == topology.Physical {
		return nil
	}
	has := "none of its family"
	if len(family) > 0 {
		has = ipnet.Join(family)
	}
	return fmt.Errorf("physical IP %s is not an address of %s, which has %s: give one of the interface's, or --force", ip, g.Interface, has)
}

// Ensure brings this host to the state u. It first gives back the NICs and local configuration that the gateway
// uses no more: the database rows changed later are the only record of them.
func (u *Uplink) Ensure(ctx context.Context) error {
	if err := u.giveBack(ctx); err != nil {
		return err
	}
	err := u.host.Report.Stage(ctx, "waiting for ovs-vswitchd", func(ctx context.Context) error {
		if err := errors.Join(u.host.SpareConnections(ctx), u.host.Switch.EnsureGatewayPort(ctx, u.port)); err != nil || u.local == nil {
			return err
		}
		_, err := u.host.Switch.EnsureInternalPort(ctx, u.local.port)
		return err
	})
	if err != nil {
		return err
	}
	if err := dropFlows(ctx, u.host); err != nil {
		return err
	}
	if u.port.NIC != "" {
		if err := link.Surrender(u.port.NIC); err != nil {
			return fmt.Errorf("giving %s to Open vSwitch: %w", u.port.NIC, err)
		}
	}
	if u.local == nil {
		return nil
	}
	return u.local.ensure(ctx)
}

// giveBack returns to the host the NICs and the local gateway's configuration no longer used.
func (u *Uplink) giveBack(ctx context.Context) error {
	if u.leavesLocal() {
		if err := leaveLocal(ctx, u.host.Config.Firewall); err != nil {
			return err
		}
	}
	for name, f := range u.former {
		if name == u.port.NIC {
			continue
		}
		if err := f.restore(name); err != nil {
			return fmt.Errorf("giving %s back to the host: %w", name, err)
		}
	}
	return nil
}

// Changes lists the changes of Ensure, one a line.
func (u *Uplink) Changes(ctx context.Context) ([]string, error) {
	lines := slices.Clone(u.changes)
	more := func(changes []link.Change, err error) error {
		for _, c := range changes {
			lines = append(lines, c.String())
		}
		return err
	}
	for name, f := range u.former {
		if name == u.port.NIC {
			continue
		}
		changes, err := f.plan(name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, changes...)
	}
	if u.leavesLocal() {
		for _, family := range ipnet.Families() {
			if err := more(link.PlanNoBypass(family, localgateway.Table)); err != nil {
				return nil, err
			}
		}
		rules, err := firewall.PlanFamilies(ctx, u.host.Config.Firewall, firewall.Local, nil)
		if err != nil {
			return nil, err
		}
		lines = append(lines, rules...)
	}
	if u.port.NIC != "" {
		if err := more(link.PlanSurrender(u.port.NIC)); err != nil {
			return nil, err
		}
	}
	if u.local != nil {
		plan := u.local.plan
		if u.helped {
			plan = u.local.planPort
		}
		changes, err := plan(ctx, u.host.Switch)
		if err != nil {
			return nil, err
		}
		lines = append(lines, changes...)
	}
	return lines, nil
}

// Preview prints the changes on this host.
func (u *Uplink) Preview(ctx context.Context) error {
	lines, err := u.Changes(ctx)
	if err != nil {
		return err
	}
	u.host.Report.Section("this host", lines)
	u.host.Report.Continue()
	return nil
}

// Find returns the configuration of a gateway on this host, to be removed.
func Find(ctx context.Context, h *host.Host, name string) (*Uplink, error) {
	former, err := findFormer(ctx, h.Switch, name)
	if err != nil {
		return nil, err
	}
	u := &Uplink{host: h, port: vswitch.GatewayPort{Gateway: name}, former: former}
	u.changes, err = h.Switch.PlanGatewayPort(ctx, u.port)
	return u, err
}

// Changed reports whether this host differs from the desired state.
func (u *Uplink) Changed() bool { return len(u.changes) > 0 }

// Disconnect undoes the work of gateway-init on this host. Tagged ports go late, before the flows, so that a
// repeated command still finds the rest.
func (u *Uplink) Disconnect(ctx context.Context) error {
	if u.Changed() {
		if err := u.giveBack(ctx); err != nil {
			return err
		}
		err := u.host.Report.Stage(ctx, "waiting for ovs-vswitchd", func(ctx context.Context) error {
			return u.host.Switch.RemoveGatewayPort(ctx, u.port.Gateway)
		})
		if err != nil {
			return err
		}
		if u.leavesLocal() { // again: until the port was gone, the gateway helper kept it all
			if err := leaveLocal(ctx, u.host.Config.Firewall); err != nil {
				return err
			}
		}
	}
	return dropFlows(ctx, u.host)
}
