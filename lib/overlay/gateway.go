package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/uplink"
)

// A Gateway is gateway-init. It makes this host a gateway of an existing cluster: it creates a router in OVN and
// connects it with a NIC, a bridge or the host. If this host is this gateway already, as after a reboot, it restores the
// host's part before it asks the database.
type Gateway struct {
	NodeName string
	// ClusterSubnet is the subnet of all pods, as given to master-init.
	ClusterSubnet string
	// One of these is the gateway's connection to the outside: a NIC of its own, a bridge shared with the host, or
	// the host's routing.
	PhysicalInterface, BridgeInterface *string
	Local                              bool
	// PhysicalIPs are the gateway's addresses outside, IP/LENGTH or IP/NETMASK; DefaultGateways its routers there (a
	// length is ignored). Each string may be a comma-separated list. A local gateway chooses its own.
	PhysicalIPs, DefaultGateways []string
	VLAN                         string
	// Rampout are the egress subnets of this gateway, separated by commas.
	Rampout string
	// Force continues where the host might lose its network, or another host this gateway.
	Force bool
}

// The text of errOneInterface is that of the Python era: scripts may match it.
var (
	//lint:ignore ST1005 the original's text
	errOneInterface = errors.New("One of physical-interface or bridge-interface has to be specified: or --local, and only one of the three")
	errNoSystemID   = errors.New("no system-id configured in the local host: set external_ids:system-id of Open_vSwitch, to a name that no other host has")
)

func (g Gateway) run(ctx context.Context, s *session) error {
	r, warnings, problem := g.parse()
	s.WarnAll(warnings)
	u, err := s.planUplink(ctx, &r, problem == nil)
	if err := errors.Join(problem, err); err != nil {
		return err
	}
	if err := u.Guard(); err != nil {
		return err
	}
	if !u.Changed() && !s.dryRun {
		if err := u.Ensure(ctx); err != nil {
			return err
		}
	}
	if err := s.openStore(ctx, ""); err != nil {
		return err
	}
	if err := s.refuseTakeover(ctx, r.Name, g.Force); err != nil {
		return err
	}
	unit, change := topology.GatewayUnit(r.Name), r.Add()
	if s.dryRun {
		if err := s.store.Preview(ctx, unit, change); err != nil {
			return err
		}
		return u.Preview(ctx)
	}
	if _, err := s.store.Change(ctx, unit, change); err != nil {
		return err
	}
	s.Continue()
	if err := u.Ensure(ctx); err != nil {
		return err
	}
	s.Finish()
	return nil
}

// planUplink plans this host, and completes the request. For a bad request it plans nothing, but reports all problems
// of the host.
func (s *session) planUplink(ctx context.Context, r *uplink.Request, good bool) (*uplink.Uplink, error) {
	err := s.openWithNB(ctx)
	if s.host == nil {
		return nil, err
	}
	if s.host.Config.SystemID == "" {
		err = errors.Join(err, errNoSystemID)
	}
	if !good || err != nil {
		return nil, err
	}
	if err := s.host.CheckTunnels(); err != nil {
		return nil, err
	}
	r.Network.Join = s.host.Config.GivenJoin()
	u, err := uplink.New(ctx, s.host, *r)
	if err != nil {
		return nil, err
	}
	r.Gateway.Gateway = u.Gateway
	return u, s.host.CheckDatapath(ctx, !u.Changed())
}

// parse checks g by itself, without the host and the database. The error names every problem.
func (g Gateway) parse() (r uplink.Request, warnings []string, err error) {
	r.Name, r.Force = strings.TrimSpace(g.NodeName), g.Force
	required := []string{g.ClusterSubnet, g.NodeName}
	if !g.Local {
		required = append(required, strings.Join(g.PhysicalIPs, ""))
	}
	for _, name := range []*string{g.PhysicalInterface, g.BridgeInterface} {
		if name != nil {
			required = append(required, *name)
		}
	}
	if slices.ContainsFunc(required, func(v string) bool { return strings.TrimSpace(v) == "" }) {
		return r, nil, errEmpty
	}
	gateway := &r.Gateway.Gateway
	gateway.Mode, gateway.Interface, err = g.mode()
	errs := []error{topology.CheckNodeName(r.Name), err}
	r.Subnets, err = ipnet.ParseDisjoint(g.ClusterSubnet, topology.MinHosts)
	errs = append(errs, err)
	if g.Local && (len(g.PhysicalIPs) > 0 || len(g.DefaultGateways) > 0 || g.VLAN != "") {
		errs = append(errs, errors.New("--physical-ip, --default-gw and --vlan are not for --local: such a gateway has the host's way out"))
	}
	gateway.IPs, err = each(g.PhysicalIPs, parsePhysicalIP)
	errs = append(errs, err)
	gateway.NextHops, err = each(g.DefaultGateways, parseNextHop)
	errs = append(errs, err)
	if g.VLAN != "" {
		gateway.VLAN, err = strconv.Atoi(g.VLAN)
		if err != nil || gateway.VLAN < 1 || gateway.VLAN > 4094 {
			errs = append(errs, fmt.Errorf("--vlan %q is not a VLAN: want a number from 1 to 4094", g.VLAN))
		}
	}
	slices.SortStableFunc(gateway.IPs, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	slices.SortStableFunc(gateway.NextHops, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	gateway.Rampout, warnings = parseRampout(g.Rampout, r.Subnets)
	return r, warnings, errors.Join(errs...)
}

// mode returns the requested one of the three modes, and the interface.
func (g Gateway) mode() (mode, iface string, err error) {
	chosen := 0
	for _, c := range []struct {
		asked bool
		mode  string
		iface *string
	}{
		{g.PhysicalInterface != nil, topology.Physical, g.PhysicalInterface},
		{g.BridgeInterface != nil, topology.Bridge, g.BridgeInterface},
		{g.Local, topology.Local, new(names.LocalBridge)},
	} {
		if c.asked {
			chosen++
			mode, iface = c.mode, strings.TrimSpace(*c.iface)
		}
	}
	if chosen != 1 {
		err = errOneInterface
	}
	return mode, iface, err
}

// each parses comma-separated lists.
func each[T any](lists []string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	var errs []error
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			v, err := parse(strings.TrimSpace(word))
			errs = append(errs, err)
			all = append(all, v)
		}
	}
	return all, errors.Join(errs...)
}

// parsePhysicalIP reads IP/LENGTH, IP/NETMASK, or an IP without a subnet.
func parsePhysicalIP(word string) (netip.Prefix, error) {
	addr, length, sliced := strings.Cut(word, "/")
	bad := fmt.Errorf("physical IP %q is not an address: write it like 10.0.0.5/24, 10.0.0.5/255.255.255.0 or fd00::5/64", word)
	ip, err := netip.ParseAddr(addr)
	if err != nil || ip.Is4In6() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() {
		return netip.Prefix{}, bad
	}
	if !sliced {
		return ipnet.Single(ip), nil
	}
	bits, err := strconv.Atoi(length)
	if mask, ok := parseMask(length); ok && ip.Is4() {
		bits, err = mask, nil
	}
	p := netip.PrefixFrom(ip, bits)
	if err != nil || !p.IsValid() || bits == 0 {
		return p, bad
	}
	if ip.Is4() && bits < 31 {
		// A network's own address and its broadcast address belong to no host.
		last, _ := ipnet.Nth(p, 1<<(32-bits)-1)
		if ip == p.Masked().Addr() || ip == last {
			return p, fmt.Errorf("physical IP %q is the address of the network itself or its broadcast address: give the address of a host", word)
		}
	}
	return p, nil
}

// parseMask reads a netmask such as 255.255.255.0.
func parseMask(s string) (bits int, ok bool) {
	mask, err := netip.ParseAddr(s)
	if err != nil || !mask.Is4() {
		return 0, false
	}
	for bits := range 33 {
		if p, _ := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(bits); p.Addr() == mask {
			return bits, true
		}
	}
	return 0, false
}

// parseNextHop reads an address and ignores a prefix length.
func parseNextHop(word string) (netip.Addr, error) {
	addr, _, _ := strings.Cut(word, "/")
	ip, err := netip.ParseAddr(addr)
	if err != nil || ip.Is4In6() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return ip, fmt.Errorf("default gateway %q is not an address: write it like 10.0.0.1 or fd00::1", word)
	}
	return ip, nil
}

// parseRampout reads egress subnets. It warns of invalid ones and omits them, as in the Python era.
func parseRampout(list string, clusters []netip.Prefix) (all []netip.Prefix, warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		p, err := netip.ParsePrefix(word)
		switch {
		case word == "":
		case err != nil || p != p.Masked():
			warn("%s is not valid subnet: it is left out; write it like 192.168.2.0/24", word)
		case !ipnet.Within([]netip.Prefix{p}, clusters):
			warn("%s has no pods, they are in %s: it is left out", word, ipnet.Join(clusters))
		default:
			all = append(all, p)
		}
	}
	return all, warnings
}

// A GatewayRemoval is gateway-remove. It takes a gateway out of the cluster. On the gateway's own host it also undoes the
// work of a Gateway, and only that if the gateway is another host by now. A missing gateway is not an error.
type GatewayRemoval struct{ NodeName string }

func (r GatewayRemoval) run(ctx context.Context, s *session) error {
	name := strings.TrimSpace(r.NodeName)
	problem := errEmpty
	if name != "" {
		problem = topology.CheckNodeName(name)
	}
	if problem != nil {
		return errors.Join(problem, link.NeedRoot())
	}
	if err := s.openWithNB(ctx); err != nil {
		return err
	}
	u, err := uplink.Find(ctx, s.host, name)
	if err != nil {
		return err
	}
	if err := s.openStore(ctx, ""); err != nil {
		return err
	}
	before, err := s.store.Topology(ctx)
	if err != nil {
		return err
	}
	if u.Changed() && s.stays("gateway "+name, before.Gateways[name].Chassis) {
		if s.dryRun {
			return u.Preview(ctx)
		}
		s.Continue()
		if err := u.Disconnect(ctx); err != nil {
			return err
		}
		s.Result("Gateway %s removed from this host.", name)
		return nil
	}
	unit, change := topology.GatewayUnit(name), membership.RemoveGateway(name)
	if s.dryRun {
		if err := s.store.Preview(ctx, unit, change); err != nil {
			return err
		}
		return u.Preview(ctx)
	}
	changes, err := s.store.Change(ctx, unit, change)
	if err != nil {
		return err
	}
	s.Continue()
	if err := u.Disconnect(ctx); err != nil {
		return err
	}
	if len(changes) == 0 && !u.Changed() {
		s.Result("Gateway %s was not there.", name)
		return nil
	}
	s.Result("Gateway %s removed.", name)
	return nil
}
