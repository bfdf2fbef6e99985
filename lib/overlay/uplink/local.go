package uplink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nftables/foreign"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A localEnd is the host's end of a local gateway.
type localEnd struct {
	port      vswitch.InternalPort
	state     link.State
	bypasses  []link.Bypass // one per family, as are firewalls
	firewalls []firewall.FamilyRules
	setting   string // firewall
}

// warnOfFirewalls warns of tables of nftables that drop packets of pods on the way through a local gateway. The
// gateway helper repeats this check.
func warnOfFirewalls(ctx context.Context, h *host.Host, clusters []netip.Prefix) {
	families := ipnet.Families()
	rules, err := foreign.Read(ctx)
	if errors.Is(err, foreign.ErrMissing) {
		return
	}
	if err != nil {
		h.Report.Warn("%v", err)
	}
	for _, d := range rules.Drops(foreign.Needs{
		Interfaces: []string{localgateway.Port}, IPTables: firewall.AcceptsInIPTables(ctx, firewall.NewFamilies(h.Config.Firewall, families[:]...)),
		Answers: localgateway.Port, Families: foreign.Families(clusters),
	}) {
		h.Report.Warn("%s", d)
	}
}

// planLocal plans the host's end of a local gateway.
func (u *Uplink) planLocal(ctx context.Context, clusters []netip.Prefix) error {
	if err := host.NeedIPv6(clusters); err != nil {
		return err
	}
	g := &u.Gateway
	u.port.Bridge, u.port.Own = names.LocalBridge, true
	// The host itself would answer packets from pods to clients outside by the management port, so the reverse path
	// differs.
	u.local = &localEnd{setting: u.host.Config.Firewall, state: link.State{Interface: localgateway.Port, MTU: u.host.Config.MTU, LooseReversePath: true}}
	links, err := localgateway.Links(u.host.Config.LocalSubnets, clusters)
	if err != nil {
		return err
	}
	for _, l := range links {
		g.IPs = append(g.IPs, l.Router)
		g.NextHops = append(g.NextHops, l.Host.Addr())
		u.local.state.Addresses = append(u.local.state.Addresses, l.Host)
		u.local.bypasses = append(u.local.bypasses, link.Bypass{
			Interface: localgateway.Port, Via: l.Router.Addr(), To: l.Pods, Mark: localgateway.Mark, Table: localgateway.Table,
		})
		u.local.firewalls = append(u.local.firewalls, firewall.FamilyRules{Family: l.Router.Addr(), Rules: l})
	}
	g.MAC = ipnet.PodMAC(g.IPs[0].Addr())
	mac := ipnet.PodMAC(g.NextHops[0])
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("making a MAC: %w", err)
	}
	u.local.state.MAC = hardware
	u.local.port = vswitch.InternalPort{Bridge: names.LocalBridge, Name: localgateway.Port, MAC: mac, MTU: u.host.Config.MTU}
	if u.helped {
		return nil
	}
	_, err = firewall.PlanFamilies(ctx, u.local.setting, firewall.Local, u.local.firewalls)
	return err
}

func (l *localEnd) ensure(ctx context.Context) error {
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
	return firewall.SyncFamilies(ctx, l.setting, firewall.Local, l.firewalls)
}

// planPort lists the changes of the port.
func (l *localEnd) planPort(ctx context.Context, sw *vswitch.Switch) ([]string, error) {
	lines, err := sw.PlanInternalPort(ctx, l.port)
	return slices.DeleteFunc(lines, func(line string) bool { return line == "add bridge "+names.LocalBridge }), err
}

// plan lists the changes of the port and of ensure.
func (l *localEnd) plan(ctx context.Context, sw *vswitch.Switch) ([]string, error) {
	lines, err := l.planPort(ctx, sw)
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
	rules, err := firewall.PlanFamilies(ctx, l.setting, firewall.Local, l.firewalls)
	return append(lines, rules...), err
}

// leavesLocal reports whether the plan removes a local gateway. Somebody may have deleted its bridge.
func (u *Uplink) leavesLocal() bool {
	patch := fmt.Sprintf("delete port %s from bridge %s", names.PatchFromIntegration(names.LocalBridge), names.IntegrationBridge)
	return slices.Contains(u.changes, "delete bridge "+names.LocalBridge) || slices.Contains(u.changes, patch)
}

// leaveLocal removes the host's configuration of a local gateway, except for ports.
func leaveLocal(ctx context.Context, setting string) error {
	for _, family := range ipnet.Families() {
		if err := link.RemoveBypass(family, localgateway.Table); err != nil {
			return err
		}
	}
	return firewall.SyncFamilies(ctx, setting, firewall.Local, nil)
}
