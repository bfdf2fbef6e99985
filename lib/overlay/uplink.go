package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
)

const (
	// localPort leads from a local gateway to its host. The name is that of later
	// releases of the original.
	localPort = "br-nexthop"
	// localChain starts the names of a local gateway's chains.
	localChain = "OVN-K8S-GATEWAY-"

	// Host numbers in the subnet between a local gateway and its host.
	localHost   = 1
	localRouter = 2
)

// An uplink is what a gateway needs on its host.
type uplink struct {
	port    vswitch.GatewayPort
	gateway topology.Gateway
	force   bool
	local   *localUplink // nil in the other modes
	// former are NICs that the gateway had, with what they had before; bridges
	// are those that it shared.
	former  map[string]former
	bridges []string
	changes []string // what is to be changed, for people
}

// A localUplink is the host's end of a local gateway.
type localUplink struct {
	port      vswitch.InternalPort
	state     link.State
	firewalls []firewall
}

// A firewall is what the packet filter of one family should have.
type firewall struct {
	family netip.Addr
	chains []iptables.Chain
}

// A former is what a NIC had before it became a gateway's.
type former struct {
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// planUplink finds out what this host should have and whether it can. It
// completes the request. Nothing is planned for a bad one, but all that is wrong
// with the host is reported.
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
	g := &r.gateway
	g.Chassis = s.config.SystemID
	g.Tunnel, _ = netip.ParseAddr(s.config.EncapIP) // a bad one is ovn-controller's to report
	u := &uplink{force: r.force, port: vswitch.GatewayPort{Gateway: r.name, IfaceID: names.ExternalPort(g.Interface, r.name)}}
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
		u.port.Pods, u.port.IPs = r.clusters, g.IPs
	case topology.Local:
		err = s.planLocal(u, g, r.clusters)
	}
	u.gateway = *g
	if err != nil {
		return nil, err
	}
	u.changes, err = s.sw.PlanGatewayPort(ctx, u.port)
	return u, err
}

// nodeHere returns the node whose management port this host has, or nothing.
func (s *session) nodeHere(ctx context.Context) (string, error) {
	all, err := s.sw.Interfaces(ctx)
	for _, i := range all {
		if node, ok := strings.CutPrefix(i.ExternalIDs[names.IfaceID], names.ManagementPort("")); ok && i.Bridge == names.IntegrationBridge && i.Type == "internal" {
			return node, nil
		}
	}
	return "", err
}

// findFormer notes the NICs and bridges that the gateway has now.
func (s *session) findFormer(ctx context.Context, u *uplink, gateway string) error {
	u.former = map[string]former{}
	all, err := s.sw.Interfaces(ctx)
	for _, i := range all {
		if i.ExternalIDs[names.GatewayTag] != gateway {
			continue
		}
		if i.Type == "patch" && i.Bridge != names.IntegrationBridge && i.Bridge != names.LocalBridge {
			u.bridges = append(u.bridges, i.Bridge)
		}
		if i.Type != "" {
			continue
		}
		var f former
		if text := i.ExternalIDs[names.FormerNIC]; text != "" {
			if err := json.Unmarshal([]byte(text), &f); err != nil {
				return fmt.Errorf("reading external_ids:%s of %s: %w", names.FormerNIC, i.Name, err)
			}
		}
		u.former[i.Name] = f
	}
	return err
}

// inspect looks at an interface that must be there and free.
func inspect(name string) (*link.NIC, error) {
	nic, err := link.Inspect(name)
	switch {
	case err != nil:
		return nil, err
	case nic == nil:
		return nil, fmt.Errorf("there is no interface %s: ip link shows which there are", name)
	case nic.Loopback:
		return nil, fmt.Errorf("%s is the loopback interface: give one that leads outside", name)
	}
	return nic, nil
}

// planNIC plans a NIC that becomes OVN's.
func (s *session) planNIC(ctx context.Context, u *uplink, g *topology.Gateway) error {
	nic, err := inspect(g.Interface)
	if err != nil {
		return err
	}
	if nic.Master != "" && nic.Master != "ovs-system" {
		return fmt.Errorf("%s is a port of %s: give that, or take the NIC out of it", g.Interface, nic.Master)
	}
	all, err := s.sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Name == g.Interface && i.Bridge != names.IntegrationBridge {
			return fmt.Errorf("%s is a port of bridge %s already: give --bridge-interface=%s to share it", g.Interface, i.Bridge, i.Bridge)
		}
	}
	if g.MAC, err = link.MAC(g.Interface); err != nil {
		return err
	}
	u.port.NIC = g.Interface
	if _, again := u.former[g.Interface]; again {
		return nil
	}
	text, err := json.Marshal(former{nic.Addresses})
	if err != nil {
		return fmt.Errorf("noting the addresses of %s: %w", g.Interface, err)
	}
	u.port.Former = string(text)
	return s.hasAddresses(u, g, nic)
}

// hasAddresses checks that the physical IPs are addresses of an interface that
// has some.
func (s *session) hasAddresses(u *uplink, g *topology.Gateway, nic *link.NIC) error {
	var errs []error
	for _, ip := range g.IPs {
		var family []netip.Prefix
		for _, a := range nic.Addresses {
			if ipnet.SameFamily(a.Addr(), ip.Addr()) {
				family = append(family, a)
			}
		}
		if slices.ContainsFunc(family, func(a netip.Prefix) bool { return a.Addr() == ip.Addr() }) || len(family) == 0 && g.Mode == topology.Physical {
			continue
		}
		has := "none of its family"
		if len(family) > 0 {
			has = ipnet.Join(family)
		}
		err := fmt.Errorf("physical IP %s is not an address of %s, which has %s: give one of the interface's, or --force", ip, g.Interface, has)
		if u.force {
			s.warn("%v", err)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// planBridge plans the sharing of a bridge.
func (s *session) planBridge(ctx context.Context, u *uplink, g *topology.Gateway) error {
	all, err := s.sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	nics := 0
	for _, i := range all {
		if i.Bridge != g.Interface {
			continue
		}
		if i.Name == g.Interface {
			g.MAC = i.MAC
		}
		if i.Type == "" || i.Type == "system" || i.Type == "dpdk" {
			nics++
		}
	}
	switch {
	case g.Interface == names.IntegrationBridge:
		return fmt.Errorf("%s is OVN's own bridge: give the one with the NIC", g.Interface)
	case g.MAC == "":
		return fmt.Errorf("%w: there is no Open vSwitch bridge %s; \"ovn-k8s-util nics-to-bridge NIC\" makes one", errNoMAC, g.Interface)
	case nics == 0:
		return fmt.Errorf("bridge %s has no NIC: nothing on it leads outside; \"ovn-k8s-util nics-to-bridge NIC\" makes a bridge with one", g.Interface)
	}
	if err := s.sameDatapath(ctx, g.Interface); err != nil {
		return err
	}
	nic, err := inspect(g.Interface)
	if err != nil {
		return err
	}
	u.port.Bridge, u.port.MAC = g.Interface, g.MAC
	g.Ports = s.config.GatewayPorts
	s.warnOfPorts(g.Ports)
	return s.hasAddresses(u, g, nic)
}

// sameDatapath checks that patch ports can connect a bridge with br-int.
func (s *session) sameDatapath(ctx context.Context, bridge string) error {
	is, err := s.sw.DatapathType(ctx, bridge)
	if err != nil {
		return err
	}
	want, err := s.sw.DatapathType(ctx, names.IntegrationBridge)
	if err != nil { // br-int is yet to be made
		if want = s.sw.ExternalIDs()["ovn-bridge-datapath-type"]; want == "" {
			want = "system"
		}
	}
	if is == want {
		return nil
	}
	return fmt.Errorf("bridge %s has datapath type %s, but %s has %s, and nothing passes between them: run \"ovs-vsctl set Bridge %s datapath_type=%s\"",
		bridge, is, names.IntegrationBridge, want, bridge, want)
}

// warnOfPorts warns if the host's own connections may have the same source ports
// as those of pods, with the same address.
func (s *session) warnOfPorts(ports string) {
	var low, high uint16
	if _, err := fmt.Sscanf(ports, "%d-%d", &low, &high); err != nil {
		return // config has checked it
	}
	from, to, err := link.LocalPorts()
	if err != nil || from > high || to < low || to == 0 {
		return
	}
	s.warn("pods leave with source ports %s, and this host's own connections with %d-%d (net.ipv4.ip_local_port_range), of the same address: set one of them so that they do not overlap, the first by external_ids:ovn-k8s-gateway-port-range", ports, from, to)
}

// planLocal plans the host's end of a local gateway.
func (s *session) planLocal(u *uplink, g *topology.Gateway, clusters []netip.Prefix) error {
	u.port.Bridge, u.port.Own = names.LocalBridge, true
	u.local = &localUplink{state: link.State{Interface: localPort, MTU: s.config.MTU}}
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
		u.local.firewalls = append(u.local.firewalls, localFirewall(router))
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
// address.
func localFirewall(router netip.Addr) firewall {
	self := netip.PrefixFrom(router, router.BitLen()).String()
	return firewall{router, []iptables.Chain{
		{Table: "filter", Name: localChain + "FORWARD", From: "FORWARD", Rules: []string{
			"-s " + self + " -i " + localPort + " -j ACCEPT",
			"-d " + self + " -o " + localPort + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		}},
		{Table: "nat", Name: localChain + "SNAT", From: "POSTROUTING", Rules: []string{"-s " + self + " -j MASQUERADE"}},
	}}
}

// guard refuses to take a NIC that the host itself needs.
func (u *uplink) guard(s *session) error {
	if u.port.NIC == "" {
		return nil
	}
	if _, again := u.former[u.port.NIC]; again {
		return nil
	}
	var needed []string
	nic, err := link.Inspect(u.port.NIC)
	if err != nil {
		return err
	}
	if nic != nil && nic.Default {
		needed = append(needed, "the host's default route")
	}
	for _, what := range s.peers() {
		carries, err := link.Carries(u.port.NIC, what.addr)
		if err != nil {
			return err
		}
		if carries && !slices.Contains(needed, what.name) {
			needed = append(needed, what.name)
		}
	}
	if len(needed) == 0 {
		return nil
	}
	err = fmt.Errorf("%s carries %s, and would lose all its addresses: give another NIC, share this one by --bridge-interface, or give --force",
		u.port.NIC, strings.Join(needed, " and "))
	if !u.force {
		return err
	}
	s.warn("%v", err)
	return nil
}

// A peer is an address that this host needs.
type peer struct {
	name string
	addr netip.Addr
}

// peers lists the addresses without which OVN does not work here.
func (s *session) peers() []peer {
	var all []peer
	add := func(name, text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, peer{name, a})
		}
	}
	add("tunnels (ovn-encap-ip "+s.config.EncapIP+")", s.config.EncapIP)
	south, _ := config.ParseRemotes(s.config.OVNRemote) // one that is bad is ovn-controller's to report
	for _, r := range slices.Concat(s.config.NB, south) {
		_, rest, _ := strings.Cut(r, ":")
		if host, _, err := net.SplitHostPort(rest); err == nil {
			add("the connection to OVN's databases", host)
		}
	}
	return all
}

// ensure makes this host what u says.
func (u *uplink) ensure(ctx context.Context, s *session) error {
	err := s.stage(ctx, "waiting for ovs-vswitchd", func(ctx context.Context) error {
		if err := s.sw.EnsureGatewayPort(ctx, u.port); err != nil || u.local == nil {
			return err
		}
		_, err := s.sw.EnsureInternalPort(ctx, u.local.port)
		return err
	})
	if err != nil {
		return err
	}
	if err := u.giveBack(ctx, s); err != nil {
		return err
	}
	if u.port.NIC != "" {
		if err := link.Surrender(u.port.NIC); err != nil {
			return fmt.Errorf("giving %s to Open vSwitch: %w", u.port.NIC, err)
		}
	}
	if u.local == nil {
		return u.leaveLocal(ctx)
	}
	if err := link.Ensure(u.local.state); err != nil {
		return fmt.Errorf("configuring %s: %w", localPort, err)
	}
	for _, f := range u.local.firewalls {
		if err := link.Forward(f.family); err != nil {
			return err
		}
	}
	return syncFirewalls(ctx, u.local.firewalls)
}

// leaveLocal takes back the packet filter's chains if this was a local gateway.
func (u *uplink) leaveLocal(ctx context.Context) error {
	if slices.Contains(u.changes, "delete bridge "+names.LocalBridge) {
		return syncFirewalls(ctx, nil)
	}
	return nil
}

// giveBack returns the NICs and bridges that are the gateway's no more to the
// host.
func (u *uplink) giveBack(ctx context.Context, s *session) error {
	for _, bridge := range u.bridges {
		if bridge == u.port.Bridge {
			continue
		}
		if err := s.dropFlows(ctx, bridge); err != nil {
			return err
		}
	}
	for name, f := range u.former {
		if name == u.port.NIC {
			continue
		}
		if err := link.Reclaim(name, f.Addresses); err != nil {
			return fmt.Errorf("giving %s back to the host: %w", name, err)
		}
	}
	return nil
}

// dropFlows removes the gateway helper's flows from a bridge. A helper that runs
// does so itself when the patch port is gone, but it may have been stopped.
func (s *session) dropFlows(ctx context.Context, bridge string) error {
	ours := func(f flow.Flow) bool { return f.Cookie == nodeport.Cookie }
	_, err := flowsync.Sync(ctx, ofctl.Bridge{RunDir: s.rundir, Name: bridge}, nil, ours)
	if err != nil && !errors.Is(err, ofctl.ErrDown) { // whose flows went with it
		return fmt.Errorf("removing the flows of %s: %w", bridge, err)
	}
	return nil
}

// bothFamilies are the families that a packet filter may have.
func bothFamilies() []netip.Addr {
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// syncFirewalls gives each family what it should have, and the others nothing.
func syncFirewalls(ctx context.Context, want []firewall) error {
	for _, family := range bothFamilies() {
		fw, err := iptables.New(family)
		chains := chainsOf(want, family)
		if err != nil {
			if len(chains) == 0 {
				continue // without the program there is nothing of ours
			}
			return err
		}
		if _, err := fw.Sync(ctx, localChain, chains); err != nil && len(chains) > 0 {
			return err
		}
	}
	return nil
}

func chainsOf(want []firewall, family netip.Addr) []iptables.Chain {
	for _, f := range want {
		if ipnet.SameFamily(f.family, family) {
			return f.chains
		}
	}
	return nil
}

// planDisconnect finds out what this host has of a gateway.
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

// disconnect undoes what GatewayInit did here. The packet filter is first: what
// is tagged goes last, so that a repeated command still finds the rest.
func (u *uplink) disconnect(ctx context.Context, s *session) error {
	if len(u.changes) == 0 {
		return nil
	}
	if err := u.leaveLocal(ctx); err != nil {
		return err
	}
	err := s.stage(ctx, "waiting for ovs-vswitchd", func(ctx context.Context) error {
		return s.sw.RemoveGatewayPort(ctx, u.port.Gateway)
	})
	if err != nil {
		return err
	}
	return u.giveBack(ctx, s)
}

// preview prints what would be changed on this host.
func (u *uplink) preview(ctx context.Context, s *session) error {
	lines := slices.Clone(u.changes)
	more := func(changes []link.Change, err error) error {
		for _, c := range changes {
			lines = append(lines, c.String())
		}
		return err
	}
	for name, f := range u.former {
		if name != u.port.NIC {
			if err := more(link.PlanReclaim(name, f.Addresses)); err != nil {
				return err
			}
		}
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
	s.section("this host", lines)
	s.goOn()
	return nil
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
	for _, f := range l.firewalls {
		more, err := link.PlanForwarding(f.family)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
	}
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	for _, f := range l.firewalls {
		fw, err := iptables.New(f.family)
		if err != nil {
			return nil, err
		}
		rules, err := fw.Plan(ctx, localChain, f.chains)
		if err != nil {
			return nil, err
		}
		lines = append(lines, rules...)
	}
	return lines, nil
}
