package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A Gateway is the input of gateway-init.
type Gateway struct {
	Command
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
	// Force continues where the host might lose its network.
	Force bool
}

// The texts of these errors are those of the Python era: scripts may match them.
var (
	//lint:ignore ST1005 the original's text
	errOneInterface = errors.New("One of physical-interface or bridge-interface has to be specified: or --local, and only one of the three")
	//lint:ignore ST1005 the original's text
	errNoMAC      = errors.New("No mac_address found for the bridge-interface")
	errNoSystemID = errors.New("no system-id configured in the local host: set external_ids:system-id of Open_vSwitch, to a name that no other host has")
)

// GatewayInit makes this host a gateway of an existing cluster: it creates a router in OVN and connects it with a
// NIC, a bridge or the host. If this host is this gateway already, as after a reboot, it restores the host's part
// before it asks the database.
func GatewayInit(ctx context.Context, g Gateway) error {
	s := newSession(g.Command)
	defer s.close()
	r, problem := s.parseGateway(g)
	u, err := s.planUplink(ctx, &r, problem == nil)
	if err := errors.Join(problem, err); err != nil {
		return err
	}
	if err := u.guard(s); err != nil {
		return err
	}
	if len(u.changes) == 0 && !s.DryRun {
		if err := u.ensure(ctx, s); err != nil {
			return err
		}
	}
	if err := s.openNB(ctx); err != nil {
		return err
	}
	unit, change := topology.GatewayUnit(r.name), s.addGateway(r)
	if s.DryRun {
		if err := s.previewCluster(ctx, unit, change); err != nil {
			return err
		}
		return u.preview(ctx, s)
	}
	if _, err := s.changeCluster(ctx, unit, change); err != nil {
		return err
	}
	s.Continue()
	if err := u.ensure(ctx, s); err != nil {
		return err
	}
	s.Finish()
	return nil
}

// A gatewayRequest is a parsed and valid Gateway.
type gatewayRequest struct {
	name     string
	clusters []netip.Prefix
	gateway  topology.Gateway
	force    bool
}

// parseGateway checks g by itself, without the host and the database. The error names every problem.
func (s *session) parseGateway(g Gateway) (gatewayRequest, error) {
	r := gatewayRequest{name: strings.TrimSpace(g.NodeName), force: g.Force}
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
		return r, errEmpty
	}
	errs := []error{topology.CheckNodeName(r.name), r.mode(g)}
	var err error
	r.clusters, err = ipnet.ParseSubnets(g.ClusterSubnet, topology.MinHosts)
	errs = append(errs, err)
	if g.Local && (len(g.PhysicalIPs) > 0 || len(g.DefaultGateways) > 0 || g.VLAN != "") {
		errs = append(errs, errors.New("--physical-ip, --default-gw and --vlan are not for --local: such a gateway has the host's way out"))
	}
	r.gateway.IPs, err = each(g.PhysicalIPs, parsePhysicalIP)
	errs = append(errs, err)
	r.gateway.NextHops, err = each(g.DefaultGateways, parseNextHop)
	errs = append(errs, err)
	if g.VLAN != "" {
		r.gateway.VLAN, err = strconv.Atoi(g.VLAN)
		if err != nil || r.gateway.VLAN < 1 || r.gateway.VLAN > 4094 {
			errs = append(errs, fmt.Errorf("--vlan %q is not a VLAN: want a number from 1 to 4094", g.VLAN))
		}
	}
	slices.SortStableFunc(r.gateway.IPs, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	slices.SortStableFunc(r.gateway.NextHops, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	r.gateway.Rampout = s.parseRampout(g.Rampout, r.clusters)
	return r, errors.Join(errs...)
}

// mode sets the requested one of the three modes.
func (r *gatewayRequest) mode(g Gateway) error {
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
			r.gateway.Mode, r.gateway.Interface = c.mode, strings.TrimSpace(*c.iface)
		}
	}
	if chosen != 1 {
		return errOneInterface
	}
	return nil
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
		return netip.PrefixFrom(ip, ip.BitLen()), nil
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
func (s *session) parseRampout(list string, clusters []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		p, err := netip.ParsePrefix(word)
		switch {
		case word == "":
		case err != nil || p != p.Masked():
			s.Warn("%s is not valid subnet: it is left out; write it like 192.168.2.0/24", word)
		case !ipnet.Within([]netip.Prefix{p}, clusters):
			s.Warn("%s has no pods, they are in %s: it is left out", word, ipnet.Join(clusters))
		default:
			all = append(all, p)
		}
	}
	return all
}

// addGateway returns the change to add the gateway to the cluster.
func (s *session) addGateway(r gatewayRequest) clusterChange {
	return func(w world) (topology.Cluster, error) {
		c, err := s.clusterForMinion(w, request{clusters: r.clusters})
		if err != nil {
			return c, err
		}
		g := r.gateway
		var taken []netip.Addr
		g.Join, taken = w.joinAddresses(c, r.name)
		return c.WithGateway(r.name, g, taken...)
	}
}

// joinAddresses returns the join addresses of a gateway of the Python era, and those of all other gateways without
// a record.
func (w world) joinAddresses(c topology.Cluster, name string) (wish, taken []netip.Addr) {
	mine := names.RouterToJoin(names.GatewayRouter(name))
	for _, p := range w.routerPorts {
		if p.ExternalIDs[names.ConnectToJoin] != "yes" || p.ExternalIDs[names.Owner] != "" {
			continue
		}
		for _, network := range p.Networks {
			prefix, err := netip.ParsePrefix(network)
			switch {
			case err != nil:
			case p.Name == mine:
				wish = append(wish, prefix.Addr())
			default:
				taken = append(taken, prefix.Addr())
			}
		}
	}
	if len(wish) != len(c.Join) {
		wish = nil
	}
	return wish, taken
}

// GatewayRemove takes a gateway out of the cluster. On the gateway's own host it also undoes the work of
// GatewayInit. A missing gateway is not an error.
func GatewayRemove(ctx context.Context, c Command) error {
	s := newSession(c)
	defer s.close()
	name := strings.TrimSpace(c.NodeName)
	u, err := s.planDisconnect(ctx, name)
	if err != nil {
		return err
	}
	if err := s.openNB(ctx); err != nil {
		return err
	}
	unit, change := topology.GatewayUnit(name), removeGateway(name)
	if s.DryRun {
		if err := s.previewCluster(ctx, unit, change); err != nil {
			return err
		}
		return u.preview(ctx, s)
	}
	changes, err := s.changeCluster(ctx, unit, change)
	if err != nil {
		return err
	}
	s.Continue()
	if err := u.disconnect(ctx, s); err != nil {
		return err
	}
	if len(changes) == 0 && len(u.changes) == 0 {
		s.Result("Gateway %s was not there.", name)
		return nil
	}
	s.Result("Gateway %s removed.", name)
	return nil
}

// removeGateway returns the change to remove a gateway.
func removeGateway(name string) clusterChange {
	return func(w world) (topology.Cluster, error) {
		router := names.GatewayRouter(name)
		for _, p := range w.routerPorts {
			if p.Name == names.RouterToJoin(router) && p.ExternalIDs[names.Owner] == "" {
				return topology.Cluster{}, fmt.Errorf("router %s was made by an older release: run gateway-init for it first, which takes it over", router)
			}
		}
		if w.router == nil || !w.recorded() {
			return topology.Cluster{}, nil // all rows of the gateway go
		}
		c, err := w.record()
		if err != nil {
			return c, err
		}
		for _, other := range c.GatewayNames() {
			if other != name && strings.EqualFold(other, name) {
				return c, fmt.Errorf("there is no gateway %s, but %s: spell the name like that", name, other)
			}
		}
		c, _ = c.WithoutGateway(name)
		return c, nil
	}
}
