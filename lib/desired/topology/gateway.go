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
	Local    = names.LocalMode  // by the host's own routing and packet filter
)

func modes() []string { return []string{Physical, Bridge, Local} }

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
	Closed    bool           `json:"closed,omitempty"`   // to clients outside: no frontends of Services
	First     bool           `json:"first,omitempty"`    // the first gateway: there is exactly one
	Node      string         `json:"node,omitempty"`     // the node's switch on the same host, if there is one, or was: see NodeIn
	Tunnel    netip.Addr     `json:"tunnel,omitzero"`    // the host's tunnel address, if known
	MTU       int            `json:"mtu,omitempty"`      // of pods, in bytes; 0: unknown; see pathMTU
}

// Gateways are gateways by name.
type Gateways map[string]Gateway

// joinFirst is the lowest host number of gateways in the join subnets.
const joinFirst = routerHost + 1

// WithGateway returns c with a gateway, in place of an earlier one of that name. The
// gateway keeps earlier join addresses; else it gets those in g.Join that are free, and
// the first that are neither another gateway's nor in taken for the others. The error
// lists every problem of the input.
func (c Cluster) WithGateway(name string, g Gateway, taken ...netip.Addr) (Cluster, error) {
	g.First = c.Gateways[name].First
	if old, ok := c.Gateways[name]; ok {
		g.Join = old.Join
	} else if err := CheckNewName(name); err != nil {
		return c, err
	}
	c, err := c.add(name, g, taken)
	c.Gateways = c.Gateways.oneFirst()
	return c, err
}

// add is WithGateway, but sets only g.Join and leaves First to oneFirst.
func (c Cluster) add(name string, g Gateway, taken []netip.Addr) (Cluster, error) {
	if err := errors.Join(c.checkGateway(name, g), c.Gateways.check(name, g)); err != nil {
		return c, err
	}
	gateways := Gateways{}
	maps.Copy(gateways, c.Gateways)
	delete(gateways, name)
	c.Gateways = gateways
	var err error
	if g.Join, err = c.joinNetwork().take(g.Join, gateways.joined(taken)); err == nil {
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
	c.Gateways = c.Gateways.oneFirst()
	return c, true
}

// oneFirst makes exactly one gateway the first: of those with First, or else of all,
// the one with the lowest join address.
func (all Gateways) oneFirst() Gateways {
	best := ""
	for name, g := range all {
		if best == "" || g.before(name, all[best], best) {
			best = name
		}
	}
	if best == "" || all.firsts() == 1 { // which is the best one then
		return all
	}
	all = maps.Clone(all)
	for name, g := range all {
		g.First = name == best
		all[name] = g
	}
	return all
}

// firsts is the number of gateways with First.
func (all Gateways) firsts() (n int) {
	for _, g := range all {
		if g.First {
			n++
		}
	}
	return n
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

// Names lists the gateways in alphabetical order.
func (all Gateways) Names() []string { return slices.Sorted(maps.Keys(all)) }

// NICPorts returns the gateway of each NIC's logical port. Only these names can
// collide with those of pods' ports, NAMESPACE_POD.
func (all Gateways) NICPorts() map[string]string {
	ports := make(map[string]string, len(all))
	for name, g := range all {
		port := names.ExternalPort(g.Interface, name)
		if ports[port] = name; g.VLAN != 0 {
			ports[taggedPort(port, g.VLAN)] = name
		}
	}
	return ports
}

// Lead reports whether a chosen gateway leads outside in a family.
func (all Gateways) Lead(family netip.Addr, chosen func(name string) bool) bool {
	hops := all.hops(family)
	for name, g := range all {
		if chosen(name) && g.leads(family, hops) {
			return true
		}
	}
	return false
}

// hops reports whether any gateway has a next hop of a family.
func (all Gateways) hops(family netip.Addr) bool {
	for _, g := range all {
		if g.hops(family) {
			return true
		}
	}
	return false
}

// pins reports whether any gateway has egress subnets of a family.
func (all Gateways) pins(family netip.Addr) bool {
	for _, g := range all {
		if len(g.pins(family)) > 0 {
			return true
		}
	}
	return false
}

// pins are the egress subnets of a family. Without an address of the family, packets from there do not go to the gateway, and it has
// none: or the claim of one host would change rows of all gateways.
func (g Gateway) pins(family netip.Addr) []netip.Prefix {
	if _, ok := g.ip(family); !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(g.Rampout), func(p netip.Prefix) bool { return !ipnet.SameFamily(p.Addr(), family) })
}

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
	for _, family := range ipnet.Families() {
		if hops := g.hopsOf(family); len(hops) > 1 {
			errs = append(errs, fmt.Errorf("default gateways %s: give at most one IPv4 and one IPv6 address", ipnet.Join(hops)))
		}
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

// hopsOf are the next hops of a family.
func (g Gateway) hopsOf(family netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(g.NextHops), func(a netip.Addr) bool { return !ipnet.SameFamily(a, family) })
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

// Outside are the addresses refused to other gateways: none of a local gateway. Only its own host sends to its
// addresses, and by default all local gateways have the same.
func (g Gateway) Outside() []netip.Prefix {
	if g.Mode == Local {
		return nil
	}
	return g.IPs
}

// Reserves are the routers outside to which g sends. No Node or Service gets such an address just by asking. The next hop of a
// local gateway is its own host, and takes nothing from others.
func (g Gateway) Reserves() []netip.Addr {
	if g.Mode == Local {
		return nil
	}
	return g.NextHops
}

// check returns the conflicts of g with other gateways.
func (all Gateways) check(name string, g Gateway) error {
	var errs []error
	for _, other := range all.Names() {
		o := all[other]
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
		for _, ip := range g.Outside() {
			if slices.ContainsFunc(o.Outside(), func(p netip.Prefix) bool { return p.Addr() == ip.Addr() }) {
				errs = append(errs, fmt.Errorf("physical IP %s is gateway %s's already: give another one", ip.Addr(), other))
			}
		}
	}
	return errors.Join(errs...)
}

// joined are the join addresses in use, and more.
func (all Gateways) joined(more []netip.Addr) map[netip.Addr]bool {
	used := make(map[netip.Addr]bool, len(all)+len(more))
	for _, a := range more {
		used[a] = true
	}
	for _, g := range all {
		for _, a := range g.Join {
			used[a] = true
		}
	}
	return used
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
	network := c.joinNetwork()
	// Gateways with most of their join addresses left come first.
	order := slices.SortedFunc(maps.Keys(old), func(a, b string) int {
		return cmp.Or(cmp.Compare(network.displaced(old[a]), network.displaced(old[b])), cmp.Compare(a, b))
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

// NodeIn returns the Node of a gateway of c, "" if that is known to be on another host now.
func (g Gateway) NodeIn(c Cluster) string {
	if id := c.Chassis[g.Node]; id != "" && id != g.Chassis {
		return ""
	}
	return g.Node
}

// own are the subnets of the node on a gateway's host.
func (g Gateway) own(c Cluster) []netip.Prefix { return c.Nodes[g.NodeIn(c)] }

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
