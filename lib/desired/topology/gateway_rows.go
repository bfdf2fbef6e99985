package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// GatewayUnitPrefix starts the units of gateways.
const GatewayUnitPrefix = "gateway/"

// GatewayUnit returns the owner of the rows of a gateway.
func GatewayUnit(name string) nb.Unit { return nb.Unit(GatewayUnitPrefix + name) }

// GatewayOf is the inverse of GatewayUnit. It reports false for units of other
// kinds.
func GatewayOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), GatewayUnitPrefix) }

// neighbourAge is the time in seconds after which a gateway forgets a neighbour: ovn-nb(5),
// mac_binding_age_threshold. OVN before 23.09 also forgets neighbours in use, and asks again.
const neighbourAge = "86400"

// GatewayRows returns the rows of GatewayUnit(name) without the routes to the gateway
// (GatewayRoutes): its router with ports, NAT and routes, and the switch between
// router and NIC. It returns nil if c does not have the gateway.
func (c Cluster) GatewayRows(name string) []nb.Row {
	g, ok := c.Gateways[name]
	if !ok {
		return nil
	}
	router, outside := names.GatewayRouter(name), names.ExternalSwitch(name)
	first := map[bool]string{true: "yes", false: "no"}[g.First]
	rows := []nb.Row{
		{
			Table: nbdb.LogicalRouterTable, ID: router, Adopt: true,
			Model: &nbdb.LogicalRouter{
				Name: router,
				// Packets to a load balancer get an address of this router as source, so that the
				// answer comes back here. The router learns the MACs only of hosts outside to which
				// it sends, not of every host that sends an ARP request.
				Options: map[string]string{
					"chassis": g.Chassis, "lb_force_snat_ip": words(g.Join), "always_learn_from_arp_request": "false",
					"mac_binding_age_threshold": neighbourAge,
				},
				ExternalIDs: map[string]string{names.PhysicalIP: g.IPs[0].Addr().String(), names.FirstGateway: first},
			},
			Has: g.balancers(),
		},
		{Table: nbdb.LogicalSwitchTable, ID: outside, Adopt: true, Model: &nbdb.LogicalSwitch{Name: outside}},
	}
	up := routerPort(router, names.RouterToJoin(router), joinMAC(g.Join), c.joinNetwork().within(g.Join))
	up.Model.(*nbdb.LogicalRouterPort).ExternalIDs = map[string]string{names.ConnectToJoin: "yes"}
	out := routerPort(router, names.RouterToExternal(name), g.MAC, g.IPs)
	out.Model.(*nbdb.LogicalRouterPort).ExternalIDs = map[string]string{names.GatewayPhysicalIP: "yes"}
	out.Model.(*nbdb.LogicalRouterPort).Options = g.pathMTU()
	rows = append(rows,
		up, switchPort(names.JoinToRouter(router), names.RouterToJoin(router), joinMAC(g.Join), names.JoinSwitch),
		out, entry(switchPort(names.ExternalToRouter(name), names.RouterToExternal(name), g.MAC, outside)))
	rows = append(rows, g.nic(name)...)
	return append(rows, c.inside().gateway(name, g)...)
}

// balancers are the load balancers for clients outside.
func (g Gateway) balancers() []nb.Ref {
	if g.Closed {
		return nil
	}
	return []nb.Ref{
		{Table: nbdb.LoadBalancerGroupTable, ID: names.LoadBalancerGroup, Column: "load_balancer_group"},
		{Table: nbdb.LoadBalancerGroupTable, ID: names.GatewayLoadBalancerGroup, Column: "load_balancer_group"},
	}
}

// pathMTU makes the gateway answer packets from outside that are too large for pods with the ICMP errors of path
// MTU discovery (RFC 1191, RFC 8201). On the outer port the check precedes DNAT: senders recognize their packets.
func (g Gateway) pathMTU() map[string]string {
	if g.MTU == 0 {
		return nil
	}
	return map[string]string{"gateway_mtu": strconv.Itoa(g.MTU)}
}

// nic returns the logical port of the NIC, bound to this host only. With a VLAN, the
// NIC's port is on a switch of its own, and the VLAN's port is nested in it, as a
// container's in its virtual machine's (ovn-architecture(7)): so br-int does the tagging.
func (g Gateway) nic(name string) []nb.Row {
	here := map[string]string{"requested-chassis": g.Chassis}
	port := &nbdb.LogicalSwitchPort{Name: names.ExternalPort(g.Interface, name), Addresses: []string{"unknown"}, Options: here}
	row := nb.Row{
		Table: nbdb.LogicalSwitchPortTable, ID: port.Name, Adopt: true, Model: port,
		In: []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: names.ExternalSwitch(name), Column: "ports"}},
	}
	if g.VLAN == 0 {
		return []nb.Row{row}
	}
	trunk := names.TrunkSwitch(name)
	parent := nb.Row{
		Table: nbdb.LogicalSwitchPortTable, ID: port.Name, Adopt: true, Model: &nbdb.LogicalSwitchPort{Name: port.Name, Options: here},
		In: []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: trunk, Column: "ports"}},
	}
	port.ParentName, port.TagRequest, port.Options = &parent.ID, &g.VLAN, nil
	port.Name = taggedPort(parent.ID, g.VLAN)
	row.ID = port.Name
	return []nb.Row{{Table: nbdb.LogicalSwitchTable, ID: trunk, Model: &nbdb.LogicalSwitch{Name: trunk}}, parent, row}
}

// taggedPort returns the logical port of a VLAN of a NIC.
func taggedPort(parent string, vlan int) string { return fmt.Sprintf("%s.%d", parent, vlan) }

// inside are the networks of the cluster itself: any number of pods' subnets, and one join subnet of each of their
// families. In both lists IPv4 is first.
type inside struct {
	pods, join []netip.Prefix
}

// router returns the cluster router's address in the join subnet of a family.
func (in inside) router(family netip.Addr) netip.Addr {
	for _, join := range ipnet.OfFamily(in.join, ipnet.Family(family)) {
		a, _ := ipnet.Nth(join, routerHost)
		return a
	}
	return netip.Addr{}
}

func (c Cluster) inside() inside { return inside{c.Subnets, c.Join} }

// gateway returns the routes, NAT and policies of a gateway's router.
func (in inside) gateway(name string, g Gateway) []nb.Row {
	router, port := names.GatewayRouter(name), names.RouterToExternal(name)
	var rows []nb.Row
	for _, subnet := range in.pods {
		via := in.router(subnet.Addr())
		rows = append(rows, route(router, router+"/"+subnet.String(), nbdb.LogicalRouterStaticRoute{IPPrefix: subnet.String(), Nexthop: via.String()}))
		outside, ok := g.ip(subnet.Addr())
		if !ok {
			continue
		}
		rows = append(rows, nb.Row{
			Table: nbdb.NATTable, ID: router + "/" + subnet.String(), Adopt: true,
			Model: &nbdb.NAT{Type: nbdb.NATTypeSNAT, LogicalIP: subnet.String(), ExternalIP: outside.Addr().String(), ExternalPortRange: g.Ports},
			In:    []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "nat"}},
		})
	}
	rows = append(append(rows, in.balanced(name)...), g.notBack(name), in.notInside(name), notRepeated(name))
	for _, hop := range g.NextHops {
		all := everything(hop).String()
		rows = append(rows, route(router, router+"/"+all, nbdb.LogicalRouterStaticRoute{IPPrefix: all, Nexthop: hop.String(), OutputPort: &port}))
	}
	return rows
}

// balanced returns the policies that send connections from outside to a load balancer
// into the cluster, even if the endpoint is a node's own address. The gateway could
// reach that address outside as well, but not with its join address as source, which
// brings the answer back.
func (in inside) balanced(name string) []nb.Row {
	router := names.GatewayRouter(name)
	var rows []nb.Row
	for _, join := range in.join {
		via, _ := ipnet.Nth(join, routerHost)
		ip := ipMatch(via)
		rows = append(rows, nb.Row{
			Table: nbdb.LogicalRouterPolicyTable, ID: router + "/" + ip,
			Model: &nbdb.LogicalRouterPolicy{
				Priority: pinPriority, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{via.String()},
				Match: fmt.Sprintf("inport == %q && %s && ct.dnat", names.RouterToExternal(name), ip),
			},
			In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "policies"}},
		})
	}
	return rows
}

// notBack returns the policy that drops packets from outside that would be routed back there: packets to an address
// of a Service without a load balancer on this gateway. The router outside would return them endlessly. The gateway
// router's own packets, such as ICMP errors, pass.
func (g Gateway) notBack(name string) nb.Row {
	router, port := names.GatewayRouter(name), names.RouterToExternal(name)
	var others []string
	for _, ip := range g.IPs {
		others = append(others, fmt.Sprintf("%s.src != %s", ipMatch(ip.Addr()), ip.Addr()))
	}
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: router + "/not-back",
		Model: &nbdb.LogicalRouterPolicy{
			Priority: pinPriority - 1, Action: nbdb.LogicalRouterPolicyActionDrop,
			Match: fmt.Sprintf("inport == %q && outport == %q && (%s)", port, port, strings.Join(others, " || ")),
		},
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "policies"}},
	}
}

// notInside returns the policy that drops packets from outside with the source address
// of a pod, a management port or a router: network policies would trust them.
func (in inside) notInside(name string) nb.Row {
	router := names.GatewayRouter(name)
	var claims []string
	for f, family := range ipnet.Families() {
		if pods := ipnet.OfFamily(in.pods, f); len(pods) > 0 {
			of := append(pods, ipnet.OfFamily(in.join, f)...)
			claims = append(claims, fmt.Sprintf("%s.src == {%s}", ipMatch(family), strings.ReplaceAll(ipnet.Join(of), ",", ", ")))
		}
	}
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: router + "/not-inside",
		Model: &nbdb.LogicalRouterPolicy{
			Priority: pinPriority + 1, Action: nbdb.LogicalRouterPolicyActionDrop,
			Match: fmt.Sprintf("inport == %q && (%s)", names.RouterToExternal(name), strings.Join(claims, " || ")),
		},
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "policies"}},
	}
}

// notRepeated returns the policy that drops repeated SYNs to load balancers that conntrack of the userspace datapath
// translated before OVN's flows: OVN would not apply SNAT to them. By ovncontroller.ExpireSYNs the next one is a
// new connection.
func notRepeated(name string) nb.Row {
	router := names.GatewayRouter(name)
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: router + "/not-repeated",
		Model: &nbdb.LogicalRouterPolicy{
			Priority: pinPriority + 1, Action: nbdb.LogicalRouterPolicyActionDrop,
			Match: fmt.Sprintf("inport == %q && tcp && ct.new && ct_mark.force_snat == 1 && flags.force_snat_for_lb == 0", names.RouterToExternal(name)),
		},
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "policies"}},
	}
}

// GatewayRoutes returns the rows of GatewayUnit(name) that route pods' packets to the
// gateway; a gateway that is down must not have them. Default routes to several
// gateways share the load.
func (c Cluster) GatewayRoutes(name string) []nb.Row {
	return c.GatewayRoutesBut(name, func(netip.Addr, bool) bool { return false })
}

// GatewayRoutesBut is GatewayRoutes without families for which cut(address, own) is true. own stands for the subnets of
// the node on the gateway's host.
func (c Cluster) GatewayRoutesBut(name string, cut func(family netip.Addr, own bool) bool) []nb.Row {
	g, ok := c.Gateways[name]
	if !ok {
		return nil
	}
	var rows []nb.Row
	for _, join := range g.Join {
		if cut(join, false) {
			continue
		}
		if g.leads(join, c.Gateways.hops(join)) {
			all := everything(join).String()
			rows = append(rows, route(names.ClusterRouter, name+"/"+all, nbdb.LogicalRouterStaticRoute{IPPrefix: all, Nexthop: join.String()}))
		}
		if _, ok := g.ip(join); ok && c.Gateways.pins(join) {
			// Answers to this gateway must not follow the egress subnets of another one.
			self := ipnet.Single(join).String()
			rows = append(rows, route(names.ClusterRouter, name+"/"+self, nbdb.LogicalRouterStaticRoute{IPPrefix: join.String(), Nexthop: join.String()}))
		}
	}
	for _, join := range g.Join {
		for _, pin := range g.pins(join) {
			switch {
			case cut(join, ipnet.Within([]netip.Prefix{pin}, g.own(c))):
			case c.byPolicy(pin):
				rows = append(rows, c.inside().pin(name, pin, join)...)
			default:
				rows = append(rows, pinRoute(name, pin, join))
			}
		}
	}
	return rows
}

// pinRoute returns the route by source that sends packets from an egress subnet to a
// gateway. It takes precedence over routes by destination with a shorter prefix
// (ovn-northd(8), IP routing).
func pinRoute(name string, pin netip.Prefix, join netip.Addr) nb.Row {
	source := nbdb.LogicalRouterStaticRoutePolicySrcIP
	return route(names.ClusterRouter, name+"/from/"+pin.String(), nbdb.LogicalRouterStaticRoute{IPPrefix: pin.String(), Nexthop: join.String(), Policy: &source})
}

// pin returns the policies instead of a pinRoute that would be a route to a node's
// pods: one to the gateway, and another one above it that exempts packets to addresses
// inside. A single match with "!=" and several subnets would need a flow for each
// combination of their bits in every ovn-controller: with IPv6, more than its memory
// holds.
func (in inside) pin(name string, pin netip.Prefix, join netip.Addr) []nb.Row {
	var inside []string
	for _, s := range slices.Concat(in.pods, in.join) {
		if ipnet.SameFamily(s.Addr(), join) {
			inside = append(inside, s.String())
		}
	}
	ip := ipMatch(join)
	row := func(kind string, p nbdb.LogicalRouterPolicy) nb.Row {
		return nb.Row{
			Table: nbdb.LogicalRouterPolicyTable, ID: name + kind + pin.String(), Adopt: true, Model: &p,
			In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
		}
	}
	return []nb.Row{
		row("/from/", nbdb.LogicalRouterPolicy{
			Priority: pinPriority, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{join.String()},
			Match: fmt.Sprintf("%s.src == %s", ip, pin),
		}),
		row("/inside/", nbdb.LogicalRouterPolicy{
			Priority: pinPriority + 1, Action: nbdb.LogicalRouterPolicyActionAllow,
			Match: fmt.Sprintf("%s.src == %s && %s.dst == {%s}", ip, pin, ip, strings.Join(inside, ", ")),
		}),
	}
}

// pinPriority is the priority of policies for egress subnets. Their exceptions, such
// as packets to nodes, have the next higher one.
const pinPriority = 1000

// byPolicy reports whether an egress subnet needs a policy instead of a route.
func (c Cluster) byPolicy(pin netip.Prefix) bool { return pin.Bits() > c.shortest(pin.Addr()) }

// shortest is the shortest prefix length of nodes' subnets of a family. Without any it is that of addresses.
func (c Cluster) shortest(family netip.Addr) int {
	least := family.BitLen()
	for _, subnets := range c.Nodes {
		for _, s := range subnets {
			if ipnet.SameFamily(s.Addr(), family) {
				least = min(least, s.Bits())
			}
		}
	}
	return least
}

// PinnedByPolicy reports whether c has a policy for an egress subnet of the family. It costs nodes plus gateways, not their
// product.
func (c Cluster) PinnedByPolicy(family netip.Addr) bool {
	least := c.shortest(family)
	for _, g := range c.Gateways {
		if slices.ContainsFunc(g.pins(family), func(pin netip.Prefix) bool { return pin.Bits() > least }) {
			return true
		}
	}
	return false
}

// leads reports whether g may have the default route of a family: it has an address,
// and a next hop if any gateway has one.
func (g Gateway) leads(family netip.Addr, hops bool) bool {
	_, ok := g.ip(family)
	return ok && (!hops || g.hops(family))
}

func (g Gateway) hops(family netip.Addr) bool {
	return slices.ContainsFunc(g.NextHops, func(a netip.Addr) bool { return ipnet.SameFamily(a, family) })
}

// ip returns the gateway's address outside in a family.
func (g Gateway) ip(family netip.Addr) (netip.Prefix, bool) {
	for _, ip := range g.IPs {
		if ipnet.SameFamily(ip.Addr(), family) {
			return ip, true
		}
	}
	return netip.Prefix{}, false
}

// route returns a static route of the router with the given ID.
func route(router, id string, r nbdb.LogicalRouterStaticRoute) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterStaticRouteTable, ID: id, Model: &r, Adopt: true,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "static_routes"}},
	}
}

// everything is the prefix of all addresses of a family.
func everything(family netip.Addr) netip.Prefix {
	p, _ := family.WithZone("").Prefix(0) // 0 fits every family
	return p
}

// ipMatch returns the name of a family in matches of OVN.
func ipMatch(family netip.Addr) string {
	if family.Is4() {
		return "ip4"
	}
	return "ip6"
}

func words(addrs []netip.Addr) string {
	return strings.ReplaceAll(ipnet.Join(addrs), ",", " ")
}
