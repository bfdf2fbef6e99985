package topology

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// Modes of a gateway: how its router reaches the outside.
const (
	Physical = "physical"       // by a NIC of its own, a port of br-int
	Bridge   = names.BridgeMode // by a bridge with a NIC, which it shares with the host
	Local    = names.LocalMode  // by the host's own routing and iptables
)

// A Gateway is a router on one host through which pods reach the outside.
type Gateway struct {
	Mode      string         `json:"mode"`
	Interface string         `json:"interface"`          // the NIC or bridge
	Chassis   string         `json:"chassis"`            // the host's system-id
	MAC       string         `json:"mac"`                // of the router on the outside
	IPs       []netip.Prefix `json:"ips"`                // of the router on the outside; IPv4 first
	NextHops  []netip.Addr   `json:"nextHops,omitempty"` // default gateways, at most one a family
	VLAN      int            `json:"vlan,omitempty"`     // 0: none
	Ports     string         `json:"ports,omitempty"`    // "LOW-HIGH", of connections from pods; empty: all
	Rampout   []netip.Prefix `json:"rampout,omitempty"`  // source subnets of pods for this gateway (egress subnets)
	Join      []netip.Addr   `json:"join"`               // in the join subnets; IPv4 first
	First     bool           `json:"first,omitempty"`    // the first gateway: there is exactly one
	Node      string         `json:"node,omitempty"`     // the node's switch on the same host, if there is one
	Tunnel    netip.Addr     `json:"tunnel,omitzero"`    // the host's tunnel address, if known
	MTU       int            `json:"mtu,omitempty"`      // of pods, in bytes; 0: unknown; see pathMTU
}

// joinFirst is the lowest host number of gateways in the join subnets.
const joinFirst = routerHost + 1

// WithGateway returns c with a gateway, in place of an earlier one of that name. The
// gateway keeps earlier join addresses; else it gets those in g.Join if they are free,
// else the first that are neither another gateway's nor in taken. The error lists
// every problem of the input.
func (c Cluster) WithGateway(name string, g Gateway, taken ...netip.Addr) (Cluster, error) {
	g.First = c.Gateways[name].First
	if old, ok := c.Gateways[name]; ok {
		g.Join = old.Join
	}
	c, err := c.add(name, g, taken)
	return c.oneFirst(), err
}

// add is WithGateway, but sets only g.Join and leaves First to oneFirst.
func (c Cluster) add(name string, g Gateway, taken []netip.Addr) (Cluster, error) {
	if err := errors.Join(c.checkGateway(name, g), c.checkOthers(name, g)); err != nil {
		return c, err
	}
	gateways := map[string]Gateway{}
	maps.Copy(gateways, c.Gateways)
	delete(gateways, name)
	c.Gateways = gateways
	var err error
	if g.Join, err = c.join(g.Join, taken); err == nil {
		gateways[name] = g
	}
	return c, err
}

// WithoutGateway returns c without a gateway, and false if c does not have it. If it
// was the first gateway, another one becomes it.
func (c Cluster) WithoutGateway(name string) (Cluster, bool) {
	if _, ok := c.Gateways[name]; !ok {
		return c, false
	}
	c.Gateways = maps.Clone(c.Gateways)
	delete(c.Gateways, name)
	return c.oneFirst(), true
}

// oneFirst makes exactly one gateway the first: of those with First, or else of all,
// the one with the lowest join address.
func (c Cluster) oneFirst() Cluster {
	best, firsts := "", 0
	for name, g := range c.Gateways {
		if g.First {
			firsts++
		}
		if best == "" || g.before(name, c.Gateways[best], best) {
			best = name
		}
	}
	if best == "" || firsts == 1 { // which is the best one then
		return c
	}
	c.Gateways = maps.Clone(c.Gateways)
	for name, g := range c.Gateways {
		g.First = name == best
		c.Gateways[name] = g
	}
	return c
}

// before reports whether a gateway is rather the first than another one.
func (g Gateway) before(name string, o Gateway, other string) bool {
	switch {
	case g.First != o.First:
		return g.First
	case g.Join[0] != o.Join[0]:
		return g.Join[0].Less(o.Join[0])
	}
	return name < other
}

// GatewayNames lists the gateways in alphabetical order.
func (c Cluster) GatewayNames() []string { return slices.Sorted(maps.Keys(c.Gateways)) }

// checkGateway returns the problems of g by itself.
func (c Cluster) checkGateway(name string, g Gateway) error {
	errs := []error{CheckNodeName(name)}
	if len(g.IPs) == 0 {
		errs = append(errs, fmt.Errorf("gateway %s has no physical IP: give it one", name))
	}
	for i, ip := range g.IPs {
		switch {
		case !slices.ContainsFunc(c.Subnets, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), ip.Addr()) }):
			errs = append(errs, fmt.Errorf("physical IP %s is of another family than the cluster subnets %s", ip, ipnet.Join(c.Subnets)))
		case slices.ContainsFunc(g.IPs[:i], func(o netip.Prefix) bool { return ipnet.SameFamily(o.Addr(), ip.Addr()) }):
			errs = append(errs, fmt.Errorf("physical IPs %s: give at most one IPv4 and one IPv6 address", ipnet.Join(g.IPs)))
		}
		for _, inside := range slices.Concat(c.Subnets, c.Join) {
			if inside.Overlaps(ip.Masked()) {
				errs = append(errs, fmt.Errorf("physical IP %s is in a network of the cluster's own, %s", ip, inside))
			}
		}
	}
	// The range of gateway_mtu in ovn-nb(5), Logical_Router_Port.
	if g.MTU != 0 && (g.MTU < 68 || g.MTU > 65535) {
		errs = append(errs, fmt.Errorf("MTU %d of gateway %s is out of range: give 68 to 65535", g.MTU, name))
	}
	for _, hop := range g.NextHops {
		errs = append(errs, g.checkHop(hop))
	}
	for i, a := range g.Rampout {
		for _, b := range g.Rampout[:i] {
			if a.Overlaps(b) {
				errs = append(errs, fmt.Errorf("rampout subnets %s and %s overlap: give each address once", b, a))
			}
		}
	}
	return errors.Join(errs...)
}

// checkHop checks that a next hop is a neighbour. A prefix of full length (/32, /128)
// does not tell its neighbours: the routers of clouds with such addresses answer on
// the link.
func (g Gateway) checkHop(hop netip.Addr) error {
	i := slices.IndexFunc(g.IPs, func(ip netip.Prefix) bool { return ipnet.SameFamily(ip.Addr(), hop) })
	switch {
	case i < 0:
		return fmt.Errorf("default gateway %s is of another family than the physical IP %s", hop, ipnet.Join(g.IPs))
	case hop == g.IPs[i].Addr():
		return fmt.Errorf("default gateway %s is the physical IP itself: give the router's address", hop)
	case g.IPs[i].IsSingleIP() || g.IPs[i].Contains(hop) || hop.IsLinkLocalUnicast():
		return nil
	}
	return fmt.Errorf("default gateway %s is not in the subnet of physical IP %s: give a neighbour in %s", hop, g.IPs[i], g.IPs[i].Masked())
}

// checkOthers returns the conflicts of g with other gateways.
func (c Cluster) checkOthers(name string, g Gateway) error {
	var errs []error
	for _, other := range c.GatewayNames() {
		o := c.Gateways[other]
		if other == name {
			continue
		}
		if strings.EqualFold(other, name) {
			errs = append(errs, fmt.Errorf("there is a gateway %s already: spell the name like that, or remove it", other))
		}
		if o.Chassis == g.Chassis && o.Interface == g.Interface {
			errs = append(errs, fmt.Errorf("%s is the interface of gateway %s already: remove that first", g.Interface, other))
		}
		if a, b, overlap := ipnet.Overlap(g.Rampout, o.Rampout); overlap {
			errs = append(errs, fmt.Errorf("rampout subnet %s overlaps %s of gateway %s: give each address to one gateway", a, b, other))
		}
		for _, ip := range g.IPs {
			if g.Mode != Local && slices.ContainsFunc(o.IPs, func(p netip.Prefix) bool { return p.Addr() == ip.Addr() }) {
				errs = append(errs, fmt.Errorf("physical IP %s is gateway %s's already: give another one", ip.Addr(), other))
			}
		}
	}
	return errors.Join(errs...)
}

// join returns wish if it is free and one address in each join subnet, else the
// addresses of the lowest host number that is free in all of them.
func (c Cluster) join(wish, taken []netip.Addr) ([]netip.Addr, error) {
	used := map[netip.Addr]bool{}
	for _, a := range taken {
		used[a] = true
	}
	for _, g := range c.Gateways {
		for _, a := range g.Join {
			used[a] = true
		}
	}
	if c.free(wish, used) {
		return wish, nil
	}
	for n := uint64(joinFirst); ; n++ {
		addrs := make([]netip.Addr, len(c.Join))
		for i, s := range c.Join {
			if n > ipnet.Hosts(s) {
				return nil, fmt.Errorf("ran out of IPs for gateway routers: join subnet %s is full", s)
			}
			addrs[i], _ = ipnet.Nth(s, n)
		}
		if c.free(addrs, used) {
			return addrs, nil
		}
	}
}

// free reports whether a gateway can have addrs on the join switch. An address is
// not free if its MAC would be that of the cluster router's port there, which is
// derived from the port's name.
func (c Cluster) free(addrs []netip.Addr, used map[netip.Addr]bool) bool {
	if len(addrs) != len(c.Join) || len(addrs) == 0 {
		return false
	}
	for i, a := range addrs {
		n, ok := ipnet.Offset(c.Join[i], a)
		if !ok || n < joinFirst || n > ipnet.Hosts(c.Join[i]) || used[a] {
			return false
		}
	}
	return joinMAC(addrs) != ipnet.RouterMAC(names.RouterToJoin(c.Router))
}

// joinMAC returns the MAC of a gateway router's port to the join switch. It is derived
// from the first address, so that no two gateways share one.
func joinMAC(addrs []netip.Addr) string {
	b := addrs[0].AsSlice()
	b = b[len(b)-3:]
	return fmt.Sprintf("00:00:00:%02X:%02X:%02X", b[0], b[1], b[2])
}

// text returns g as in the registry.
func (g Gateway) text() string {
	b, err := json.Marshal(g)
	if err != nil {
		panic("topology: a gateway is not JSON: " + err.Error()) // strings, numbers and addresses are
	}
	return string(b)
}

// moved adds the gateways of old to c, a cluster with other subnets. Join addresses
// outside of the new join subnets are replaced.
func (c Cluster) moved(old map[string]Gateway) (Cluster, error) {
	var errs []error
	// Gateways that keep their join addresses come first.
	order := slices.SortedFunc(maps.Keys(old), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.displaced(old[a]), c.displaced(old[b])), cmp.Compare(a, b))
	})
	for _, name := range order {
		with, err := c.add(name, old[name], nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("gateway %s: %w", name, err))
			continue
		}
		c = with
	}
	return c, errors.Join(errs...)
}

// displaced is 1 if g needs other join addresses, else 0.
func (c Cluster) displaced(g Gateway) int {
	if c.free(g.Join, nil) {
		return 0
	}
	return 1
}

// WithNodeOnChassis returns c with node as the Node of all gateways on a chassis,
// and of no others.
func (c Cluster) WithNodeOnChassis(node, chassis string) Cluster {
	sw := names.NodeSwitch(node)
	c.Gateways = maps.Clone(c.Gateways)
	for name, g := range c.Gateways {
		switch {
		case g.Chassis == chassis && chassis != "":
			g.Node = sw
		case g.Node == sw:
			g.Node = ""
		}
		c.Gateways[name] = g
	}
	return c
}
