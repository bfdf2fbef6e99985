package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nftables"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A localUplink is the host's end of a local gateway.
type localUplink struct {
	port      vswitch.InternalPort
	state     link.State
	bypasses  []link.Bypass // one per family, as are firewalls
	firewalls []firewall
}

// warnOfFirewalls warns of tables of nftables that drop packets of pods on the way through a local gateway. The
// gateway helper repeats this check.
func (s *session) warnOfFirewalls(ctx context.Context) {
	rules, err := nftables.Read(ctx)
	if errors.Is(err, nftables.ErrMissing) {
		return
	}
	if err != nil {
		s.Warn("%v", err)
	}
	for _, d := range rules.Drops(nftables.Needs{Interfaces: []string{localgateway.Port}}) {
		s.Warn("%s", d)
	}
}

// planLocal plans the host's end of a local gateway.
func (s *session) planLocal(u *uplink, g *topology.Gateway, clusters []netip.Prefix) error {
	u.port.Bridge, u.port.Own = names.LocalBridge, true
	// The host itself would answer packets from pods to clients outside by the management port, so the reverse path
	// differs.
	u.local = &localUplink{state: link.State{Interface: localgateway.Port, MTU: s.config.MTU, LooseReversePath: true}}
	links, err := localgateway.Links(s.config.LocalSubnets, clusters)
	if err != nil {
		return err
	}
	for _, l := range links {
		g.IPs = append(g.IPs, l.Router)
		g.NextHops = append(g.NextHops, l.Host.Addr())
		u.local.state.Addresses = append(u.local.state.Addresses, l.Host)
		u.local.bypasses = append(u.local.bypasses, link.Bypass{Interface: localgateway.Port, Via: l.Router.Addr(), Mark: localgateway.Mark, Table: localgateway.Table})
		fw, err := localFirewall(l)
		if err != nil {
			return err
		}
		u.local.firewalls = append(u.local.firewalls, fw)
	}
	g.MAC = ipnet.PodMAC(g.IPs[0].Addr())
	mac := ipnet.PodMAC(g.NextHops[0])
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("making a MAC: %w", err)
	}
	u.local.state.MAC = hardware
	u.local.port = vswitch.InternalPort{Bridge: names.LocalBridge, Name: localgateway.Port, MAC: mac, MTU: s.config.MTU}
	return nil
}

// localFirewall is the packet filter of one family.
func localFirewall(l localgateway.Link) (firewall, error) {
	f := firewall{family: l.Router.Addr()}
	tool, err := iptables.New(f.family)
	if err != nil {
		return f, err
	}
	for _, c := range l.Chains(tool.RandomFully()) {
		f.chains = append(f.chains, iptables.Chain(c))
	}
	return f, nil
}

func (l *localUplink) ensure(ctx context.Context) error {
	if err := link.Ensure(l.state); err != nil {
		return fmt.Errorf("configuring %s: %w", localgateway.Port, err)
	}
	for _, b := range l.bypasses {
		_, err := link.EnsureBypass(b)
		_, err2 := link.EnsureForwarding(b.Via)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
	}
	return syncFirewalls(ctx, localgateway.ChainPrefix, l.firewalls)
}

// plan lists the changes of ensure.
func (l *localUplink) plan(ctx context.Context, s *session) ([]string, error) {
	lines, err := s.sw.PlanInternalPort(ctx, l.port)
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "add bridge "+names.LocalBridge })
	if err != nil {
		return nil, err
	}
	changes, err := link.Plan(l.state)
	if err != nil {
		return nil, err
	}
	for _, b := range l.bypasses {
		bypass, err := link.PlanBypass(b)
		forwarding, err2 := link.PlanForwarding(b.Via)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		changes = slices.Concat(changes, bypass, forwarding)
	}
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	rules, err := planFirewalls(ctx, localgateway.ChainPrefix, l.firewalls)
	return append(lines, rules...), err
}

// leavesLocal reports whether the plan removes a local gateway.
func (u *uplink) leavesLocal() bool {
	return slices.Contains(u.changes, "delete bridge "+names.LocalBridge)
}

// leaveLocal removes the host's configuration of a local gateway, except for ports.
func leaveLocal(ctx context.Context) error {
	for _, family := range bothFamilies() {
		if err := link.RemoveBypass(family, localgateway.Table); err != nil {
			return err
		}
	}
	return syncFirewalls(ctx, localgateway.ChainPrefix, nil)
}
