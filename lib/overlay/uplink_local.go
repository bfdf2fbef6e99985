package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

const (
	// localPort leads from a local gateway to its host. The name is that of later
	// releases of the original.
	localPort = "br-nexthop"
	// localChain starts the names of a local gateway's chains.
	localChain = "OVN-K8S-GATEWAY-"
	// localMark is on packets that routers outside send here for pods, and
	// localTable leads them to the gateway's router. The kubelet has the marks
	// 0x4000 and 0x8000, the CNI plugin portmap 0x2000, the gateway helper 0x1000.
	localMark  = 0x800
	localTable = 1646

	// Host numbers in the subnet between a local gateway and its host.
	localHost   = 1
	localRouter = 2
)

// A localUplink is the host's end of a local gateway.
type localUplink struct {
	port      vswitch.InternalPort
	state     link.State
	bypasses  []link.Bypass // one per family, as are firewalls
	firewalls []firewall
}

// A firewall is what the packet filter of one family should have.
type firewall struct {
	family netip.Addr
	chains []iptables.Chain
}

// planLocal plans the host's end of a local gateway.
func (s *session) planLocal(u *uplink, g *topology.Gateway, clusters []netip.Prefix) error {
	u.port.Bridge, u.port.Own = names.LocalBridge, true
	// What comes from pods to clients outside, the host itself would answer by
	// the management port: the reverse path is another one.
	u.local = &localUplink{state: link.State{Interface: localPort, MTU: s.config.MTU, LooseReversePath: true}}
	for _, c := range clusters {
		i := slices.IndexFunc(s.config.LocalSubnets, func(p netip.Prefix) bool { return ipnet.SameFamily(p.Addr(), c.Addr()) })
		if i < 0 {
			return fmt.Errorf("local gateway subnets %s lack one for %s: set external_ids:ovn-k8s-local-gateway-subnet", ipnet.Join(s.config.LocalSubnets), c)
		}
		subnet := s.config.LocalSubnets[i]
		router, _ := ipnet.Nth(subnet, localRouter)
		host, _ := ipnet.Nth(subnet, localHost)
		if !subnet.Contains(router) || subnet.IsSingleIP() {
			return fmt.Errorf("local gateway subnet %s is too small: it needs 2 usable addresses", subnet)
		}
		g.IPs = append(g.IPs, netip.PrefixFrom(router, subnet.Bits()))
		g.NextHops = append(g.NextHops, host)
		u.local.state.Addresses = append(u.local.state.Addresses, netip.PrefixFrom(host, subnet.Bits()))
		u.local.bypasses = append(u.local.bypasses, link.Bypass{Interface: localPort, Via: router, Mark: localMark, Table: localTable})
		u.local.firewalls = append(u.local.firewalls, localFirewall(router, c))
	}
	g.MAC = ipnet.PodMAC(g.IPs[0].Addr())
	mac := ipnet.PodMAC(g.NextHops[0])
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("making a MAC: %w", err)
	}
	u.local.state.MAC = hardware
	u.local.port = vswitch.InternalPort{Bridge: names.LocalBridge, Name: localPort, MAC: mac, MTU: s.config.MTU}
	for _, f := range u.local.firewalls {
		if _, err := iptables.New(f.family); err != nil {
			return err
		}
	}
	return nil
}

// localFirewall lets a local gateway's packets pass the host, with the host's
// address, and answers of pods. It marks what routers outside send here for pods,
// so that it goes through the gateway's router, which knows the answers by that:
// the host's route to pods is the one of the management port. Whether such packets
// may pass is for the host's own rules to say.
func localFirewall(router netip.Addr, pods netip.Prefix) firewall {
	self := netip.PrefixFrom(router, router.BitLen()).String()
	return firewall{router, []iptables.Chain{
		{Table: "filter", Name: localChain + "FORWARD", From: "FORWARD", Rules: []string{
			"-s " + self + " -i " + localPort + " -j ACCEPT",
			"-d " + self + " -o " + localPort + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"-s " + pods.String() + " -i " + localPort + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		}},
		{Table: "mangle", Name: localChain + "PREROUTING", From: "PREROUTING", Rules: []string{
			"-i " + localPort + " -j RETURN",
			"-i " + names.ManagementPort("") + "+ -j RETURN",
			fmt.Sprintf("-d %s -j MARK --set-xmark %#x/%#x", pods, localMark, localMark),
		}},
		{Table: "nat", Name: localChain + "SNAT", From: "POSTROUTING", Rules: []string{"-s " + self + " -j MASQUERADE"}},
	}}
}

// ensure makes the host's end.
func (l *localUplink) ensure(ctx context.Context) error {
	if err := link.Ensure(l.state); err != nil {
		return fmt.Errorf("configuring %s: %w", localPort, err)
	}
	for _, b := range l.bypasses {
		if err := errors.Join(link.EnsureBypass(b), link.Forward(b.Via)); err != nil {
			return err
		}
	}
	return syncFirewalls(ctx, l.firewalls)
}

// plan says what the host's end of a local gateway would change.
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
	rules, err := planFirewalls(ctx, l.firewalls)
	return append(lines, rules...), err
}

// leavesLocal reports whether this was a local gateway and is to be none any more.
func (u *uplink) leavesLocal() bool {
	return slices.Contains(u.changes, "delete bridge "+names.LocalBridge)
}

// leaveLocal takes back what the host has for a local gateway, but for ports.
func leaveLocal(ctx context.Context) error {
	for _, family := range bothFamilies() {
		if err := link.RemoveBypass(family, localTable); err != nil {
			return err
		}
	}
	return syncFirewalls(ctx, nil)
}

// bothFamilies are the families that a packet filter may have.
func bothFamilies() []netip.Addr {
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// syncFirewalls gives each family what it should have, and the others nothing.
func syncFirewalls(ctx context.Context, want []firewall) error {
	return eachFirewall(want, func(fw *iptables.Firewall, chains []iptables.Chain) error {
		_, err := fw.Sync(ctx, localChain, chains)
		return err
	})
}

// planFirewalls says what syncFirewalls would change.
func planFirewalls(ctx context.Context, want []firewall) (lines []string, err error) {
	err = eachFirewall(want, func(fw *iptables.Firewall, chains []iptables.Chain) error {
		rules, err := fw.Plan(ctx, localChain, chains)
		lines = append(lines, rules...)
		return err
	})
	return lines, err
}

// eachFirewall does something with the packet filter of each family. One that the
// kernel or the host does not have has nothing of ours.
func eachFirewall(want []firewall, do func(*iptables.Firewall, []iptables.Chain) error) error {
	for _, family := range bothFamilies() {
		chains := chainsOf(want, family)
		fw, err := iptables.New(family)
		absent := err != nil
		if !absent {
			err = do(fw, chains)
			absent = family.Is6() && errors.Is(err, iptables.ErrUnreadable)
		}
		if err != nil && !(absent && len(chains) == 0) {
			return err
		}
	}
	return nil
}

// chainsOf are those of one family.
func chainsOf(want []firewall, family netip.Addr) []iptables.Chain {
	for _, f := range want {
		if ipnet.SameFamily(f.family, family) {
			return f.chains
		}
	}
	return nil
}
