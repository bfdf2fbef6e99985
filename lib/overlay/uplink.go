package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// An uplink is the desired state of a gateway's host.
type uplink struct {
	port    vswitch.GatewayPort
	gateway topology.Gateway
	force   bool
	local   *localUplink // nil in the other modes
	// former are the NICs of the gateway, with their configuration before.
	former  map[string]former
	changes []string // planned changes, for people
}

// planUplink computes this host's desired state and checks it. It completes the request. For a bad request it plans
// nothing, but reports all problems of the host.
func (s *session) planUplink(ctx context.Context, r *gatewayRequest, good bool) (*uplink, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	err := s.openHost(ctx)
	if s.sw == nil {
		return nil, err
	}
	if err == nil && len(s.config.NB) == 0 {
		err = config.ErrNoNB
	}
	if s.config.SystemID == "" {
		err = errors.Join(err, errNoSystemID)
	}
	if !good || err != nil {
		return nil, err
	}
	if err := s.checkTunnels(); err != nil {
		return nil, err
	}
	var u *uplink
	asked := *r
	err = s.Retry(ctx, "looking at this host's network", func(ctx context.Context) (err error) {
		*r = asked
		u, err = s.planHostEnd(ctx, r)
		return err
	})
	return u, err
}

// planHostEnd plans the changes on this host. Its network may be late.
func (s *session) planHostEnd(ctx context.Context, r *gatewayRequest) (u *uplink, err error) {
	g := &r.gateway
	g.Chassis, g.MTU = s.config.SystemID, s.config.MTU
	g.Tunnel, _ = netip.ParseAddr(s.config.EncapIP) // ovn-controller reports a bad one
	if g.Interface != "" {
		if g.Interface, err = link.KernelName(g.Interface); err != nil {
			return nil, err
		}
	}
	u = &uplink{force: r.force, port: vswitch.GatewayPort{Gateway: r.name, IfaceID: names.ExternalPort(g.Interface, r.name)}}
	if err := s.findFormer(ctx, u, r.name); err != nil {
		return nil, err
	}
	if g.Node, err = s.nodeHere(ctx); err != nil {
		return nil, err
	}
	switch g.Mode {
	case topology.Physical:
		err = s.planNIC(ctx, u, g)
	case topology.Bridge:
		err = s.planBridge(ctx, u, g)
	case topology.Local:
		s.warnOfFirewalls(ctx)
		err = s.planLocal(u, g, r.clusters)
	}
	if g.Mode != topology.Physical { // for the gateway helper
		u.port.Pods, u.port.IPs = r.clusters, g.IPs
	}
	if g.Mode != topology.Local {
		u.port.NextHops = g.NextHops
	}
	u.gateway = *g
	if err != nil {
		return nil, err
	}
	u.changes, err = s.sw.PlanGatewayPort(ctx, u.port)
	return u, err
}

// nodeHere returns the node with its management port on this host, or "".
func (s *session) nodeHere(ctx context.Context) (string, error) {
	all, err := s.sw.Interfaces(ctx)
	for _, i := range all {
		if node, ok := strings.CutPrefix(i.ExternalIDs[names.IfaceID], names.ManagementPort("")); ok && i.Bridge == names.IntegrationBridge && i.Type == "internal" {
			return node, nil
		}
	}
	return "", err
}

// hasAddresses checks that the physical IPs are addresses of the interface.
func (s *session) hasAddresses(u *uplink, g *topology.Gateway, nic *link.NIC) error {
	var errs []error
	for _, ip := range g.IPs {
		err := hasAddress(nic, ip, g)
		if err != nil && u.force {
			s.Warn("%v", err)
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

// ensure brings this host to the state u. It first gives back the NICs and local configuration that the gateway
// uses no more: the database rows changed later are the only record of them.
func (u *uplink) ensure(ctx context.Context, s *session) error {
	if err := u.giveBack(ctx); err != nil {
		return err
	}
	err := s.Stage(ctx, "waiting for ovs-vswitchd", func(ctx context.Context) error {
		if err := errors.Join(s.spareConnections(ctx), s.sw.EnsureGatewayPort(ctx, u.port)); err != nil || u.local == nil {
			return err
		}
		_, err := s.sw.EnsureInternalPort(ctx, u.local.port)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.dropFlows(ctx); err != nil {
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
func (u *uplink) giveBack(ctx context.Context) error {
	if u.leavesLocal() {
		if err := leaveLocal(ctx); err != nil {
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

// preview prints the changes on this host.
func (u *uplink) preview(ctx context.Context, s *session) error {
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
			return err
		}
		lines = append(lines, changes...)
	}
	if u.leavesLocal() {
		for _, family := range bothFamilies() {
			if err := more(link.PlanNoBypass(family, localgateway.Table)); err != nil {
				return err
			}
		}
		rules, err := planFirewalls(ctx, localgateway.ChainPrefix, nil)
		if err != nil {
			return err
		}
		lines = append(lines, rules...)
	}
	if u.port.NIC != "" {
		if err := more(link.PlanSurrender(u.port.NIC)); err != nil {
			return err
		}
	}
	if u.local != nil {
		changes, err := u.local.plan(ctx, s)
		if err != nil {
			return err
		}
		lines = append(lines, changes...)
	}
	s.Section("this host", lines)
	s.Continue()
	return nil
}

// planDisconnect finds the configuration of a gateway on this host.
func (s *session) planDisconnect(ctx context.Context, name string) (*uplink, error) {
	problem := errEmpty
	if name != "" {
		problem = topology.CheckNodeName(name)
	}
	if err := errors.Join(problem, needRoot()); err != nil {
		return nil, err
	}
	err := s.openHost(ctx)
	if err == nil && len(s.config.NB) == 0 {
		err = config.ErrNoNB
	}
	if err != nil {
		return nil, err
	}
	u := &uplink{port: vswitch.GatewayPort{Gateway: name}}
	if err := s.findFormer(ctx, u, name); err != nil {
		return nil, err
	}
	u.changes, err = s.sw.PlanGatewayPort(ctx, u.port)
	return u, err
}

// disconnect undoes the work of GatewayInit on this host. Tagged ports go late, before the flows, so that a
// repeated command still finds the rest.
func (u *uplink) disconnect(ctx context.Context, s *session) error {
	if len(u.changes) > 0 {
		if err := u.giveBack(ctx); err != nil {
			return err
		}
		err := s.Stage(ctx, "waiting for ovs-vswitchd", func(ctx context.Context) error {
			return s.sw.RemoveGatewayPort(ctx, u.port.Gateway)
		})
		if err != nil {
			return err
		}
		if u.leavesLocal() { // again: until the port was gone, the gateway helper kept it all
			if err := leaveLocal(ctx); err != nil {
				return err
			}
		}
	}
	return s.dropFlows(ctx)
}
