package topology

import (
	"maps"
	"net/netip"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Host numbers in a node's subnet, and of the cluster router in the join
// subnet.
const (
	routerHost     = 1
	managementHost = 2
)

// ClusterUnit owns the rows that exist once in a cluster.
const ClusterUnit nb.Unit = "cluster"

// NodePrefix starts the units of nodes.
const NodePrefix = "node/"

// NodeUnit returns the owner of the rows of a node.
func NodeUnit(node string) nb.Unit { return nb.Unit(NodePrefix + names.NodeSwitch(node)) }

// NodeOf is the inverse of NodeUnit. It reports false for units of other kinds.
func NodeOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), NodePrefix) }

// Rows returns the rows of ClusterUnit: the cluster router, the join switch, the two
// ports between them; the load balancer groups of node switches and gateway routers
// together, of node switches, and of gateway routers; and the port group by which all
// these switches have an ACL.
func (c Cluster) Rows() []nb.Row {
	tags := c.Registry()
	tags[names.ClusterRouterTag] = "yes"
	mac := ipnet.RouterMAC(names.RouterToJoin(c.Router))
	router := nb.Row{
		Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Adopt: true,
		Model:   &nbdb.LogicalRouter{Name: c.Router, ExternalIDs: tags},
		OnlyNew: []string{names.KubernetesUID}, // the watcher's
	}
	join := nb.Row{
		Table: nbdb.LogicalSwitchTable, ID: names.JoinSwitch, Adopt: true,
		Model: &nbdb.LogicalSwitch{Name: names.JoinSwitch},
	}
	group := nb.Row{
		Table: nbdb.LoadBalancerGroupTable, ID: names.LoadBalancerGroup, Adopt: true,
		Model: &nbdb.LoadBalancerGroup{Name: names.LoadBalancerGroup},
	}
	switches := nb.Row{
		Table: nbdb.LoadBalancerGroupTable, ID: names.SwitchLoadBalancerGroup, Adopt: true,
		Model: &nbdb.LoadBalancerGroup{Name: names.SwitchLoadBalancerGroup},
	}
	gateways := nb.Row{
		Table: nbdb.LoadBalancerGroupTable, ID: names.GatewayLoadBalancerGroup, Adopt: true,
		Model: &nbdb.LoadBalancerGroup{Name: names.GatewayLoadBalancerGroup},
	}
	entries := nb.Row{
		Table: nbdb.PortGroupTable, ID: names.EntryPortGroup, Adopt: true,
		Model: &nbdb.PortGroup{Name: names.EntryPortGroup},
	}
	down := routerPort(names.ClusterRouter, names.RouterToJoin(c.Router), mac, hosts(c.Join, routerHost))
	down.Model.(*nbdb.LogicalRouterPort).ExternalIDs = map[string]string{names.ConnectToJoin: "yes"}
	up := switchPort(names.JoinToRouter(c.Router), names.RouterToJoin(c.Router), mac, names.JoinSwitch)
	return []nb.Row{router, join, group, switches, gateways, entries, down, up}
}

// NodeRows returns the rows of NodeUnit(node): its switch, the two ports
// between it and the cluster router, and its management port. It returns nil if
// c does not have the node.
func (c Cluster) NodeRows(node string) []nb.Row {
	sw := names.NodeSwitch(node)
	subnets, ok := c.Nodes[sw]
	if !ok {
		return nil
	}
	mac := ipnet.RouterMAC(names.RouterToSwitch(sw))
	lswitch := &nbdb.LogicalSwitch{
		Name:        sw,
		ExternalIDs: map[string]string{names.GatewayIP: ipnet.Join(hosts(subnets, routerHost))},
	}
	if subnets[0].Addr().Is4() {
		lswitch.OtherConfig = map[string]string{"subnet": subnets[0].String()}
	}
	m := ManagementPort(subnets)
	management := names.ManagementPort(sw)
	return []nb.Row{
		{
			Table: nbdb.LogicalSwitchTable, ID: sw, Model: lswitch, Adopt: true,
			Has: []nb.Ref{
				{Table: nbdb.LoadBalancerGroupTable, ID: names.LoadBalancerGroup, Column: "load_balancer_group"},
				{Table: nbdb.LoadBalancerGroupTable, ID: names.SwitchLoadBalancerGroup, Column: "load_balancer_group"},
			},
		},
		keeping(routerPort(names.ClusterRouter, names.RouterToSwitch(sw), mac, hosts(subnets, routerHost)), "mac"),
		keeping(entry(switchPort(names.SwitchToRouter(sw), names.RouterToSwitch(sw), mac, sw)), "addresses"),
		{
			Table: nbdb.LogicalSwitchPortTable, ID: management, Adopt: true,
			Model: &nbdb.LogicalSwitchPort{Name: management, Addresses: []string{m.MAC + " " + joinAddrs(m.IPs)}},
			In:    []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "ports"}},

			OnlyNew: []string{names.NextAddress}, // the watcher's
		},
	}
}

// Management describes a node's management port.
type Management struct {
	MAC     string
	IPs     []netip.Prefix // with the prefix length of the node's subnet; IPv4 first
	Routers []netip.Addr   // the cluster router's addresses in the same subnets
}

// ManagementPort returns the management port of a node with the given subnets: the
// second address of each, and a MAC derived from the first of these addresses, the
// same after a reboot.
func ManagementPort(subnets []netip.Prefix) Management {
	m := Management{IPs: hosts(subnets, managementHost), Routers: PodGateways(subnets)}
	m.MAC = ipnet.PodMAC(m.IPs[0].Addr())
	return m
}

// PodGateways returns the cluster router's address in each of a node's subnets.
func PodGateways(subnets []netip.Prefix) []netip.Addr {
	var gateways []netip.Addr
	for _, p := range hosts(subnets, routerHost) {
		gateways = append(gateways, p.Addr())
	}
	return gateways
}

// RouterAddresses returns the networks of the cluster router's port to a node with the given subnets.
func RouterAddresses(subnets ...netip.Prefix) []netip.Prefix { return hosts(subnets, routerHost) }

// hosts returns host n of each subnet, with the subnet's prefix length.
func hosts(subnets []netip.Prefix, n uint64) []netip.Prefix {
	out := make([]netip.Prefix, len(subnets))
	for i, s := range subnets {
		a, _ := ipnet.Nth(s, n)
		out[i] = netip.PrefixFrom(a, s.Bits())
	}
	return out
}

func joinAddrs(prefixes []netip.Prefix) string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr().String()
	}
	return strings.Join(out, " ")
}

// routerPort returns a port, with its name as ID, of the router with the given ID.
func routerPort(router, name, mac string, networks []netip.Prefix) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPortTable, ID: name, Adopt: true,
		Model: &nbdb.LogicalRouterPort{Name: name, MAC: mac, Networks: strings.Split(ipnet.Join(networks), ",")},
		In:    []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: router, Column: "ports"}},
	}
}

// switchPort returns the port of switch sw opposite the router port peer.
func switchPort(name, peer, peerMAC, sw string) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalSwitchPortTable, ID: name, Adopt: true,
		Model: &nbdb.LogicalSwitchPort{
			Name: name, Type: "router", Addresses: []string{peerMAC},
			Options: map[string]string{"router-port": peer},
		},
		In: []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "ports"}},
	}
}

// keeping returns a row that keeps the MAC of a router's port of the early Go era, which was a random one: pods have it in
// their neighbour tables.
func keeping(r nb.Row, column string) nb.Row {
	r.Keeps = []string{column}
	return r
}

// entry adds a switch's port to the port group by which the switch has ACLs.
func entry(port nb.Row) nb.Row {
	port.In = append(port.In, nb.Ref{Table: nbdb.PortGroupTable, ID: names.EntryPortGroup, Column: "ports"})
	return port
}

// FromRouter reads the topology from the cluster router and its port to the join
// switch, which may be nil. A router of the Python era has no registry: the result
// has the router's name and join subnet, the given cluster subnets, and no nodes.
func FromRouter(router *nbdb.LogicalRouter, join *nbdb.LogicalRouterPort, subnets []netip.Prefix) (Cluster, error) {
	if router.ExternalIDs[names.ClusterSubnets] != "" {
		return new(Parser).FromRouter(router)
	}
	c := Cluster{Router: router.Name, Subnets: subnets, Nodes: map[string][]netip.Prefix{}}
	if join == nil {
		return c, nil
	}
	for _, n := range join.Networks {
		if p, err := netip.ParsePrefix(n); err == nil {
			c.Join = append(c.Join, p.Masked())
		}
	}
	return c, nil
}

// FromRouter reads the topology back from a cluster router with a registry.
func (p *Parser) FromRouter(router *nbdb.LogicalRouter) (Cluster, error) {
	r := maps.Clone(router.ExternalIDs)
	r[routerKey] = router.Name
	return p.ReadRegistry(r)
}
