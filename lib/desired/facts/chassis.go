package facts

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
)

// A Chassis is a host of OVN: a node, gateways, or both.
type Chassis struct {
	Node     string // the name of its switch, "" if it is none
	Gateways []string
}

// allChassis lists the hosts of a topology by their system-id.
func allChassis(all topology.Cluster) map[string]Chassis {
	out := map[string]Chassis{}
	for node, id := range all.Chassis {
		if all.Nodes[node] != nil {
			out[id] = Chassis{Node: node}
		}
	}
	for _, name := range all.Gateways.Names() {
		g := all.Gateways[name]
		c := out[g.Chassis]
		if c.Node == "" {
			c.Node = g.NodeIn(all)
		}
		c.Gateways = append(c.Gateways, name)
		out[g.Chassis] = c
	}
	return out
}

// chassisByNode are the system-ids of the chassis of each node.
func chassisByNode(all map[string]Chassis) map[string][]string {
	out := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if node := all[id].Node; node != "" {
			out[node] = append(out[node], id)
		}
	}
	return out
}

// NodePortAddresses are the addresses of a host for NodePorts, by family: those of gateways, as large Services have only the
// first ones, and Frontends.
func (f *Facts) NodePortAddresses(c Chassis) (out [2][]netip.Addr) {
	add := func(a netip.Addr) {
		if f := ipnet.Family(a); !slices.Contains(out[f], a) {
			out[f] = append(out[f], a)
		}
	}
	for _, a := range f.GatewayAddresses(c) {
		add(a)
	}
	for _, a := range Frontends(f.Addresses[c.Node]) {
		add(a)
	}
	return out
}

// GatewayAddresses are the addresses for NodePorts of a chassis' gateways.
func (f *Facts) GatewayAddresses(c Chassis) (out []netip.Addr) {
	for _, name := range c.Gateways {
		if g := f.Cluster.Gateways[name]; g.Mode != topology.Local {
			for _, p := range g.IPs {
				out = append(out, p.Addr())
			}
		}
	}
	return out
}

// NodePortHosts are the addresses of all hosts for NodePorts, sorted.
func (f *Facts) NodePortHosts() (out []netip.Addr) {
	out = make([]netip.Addr, 0, len(f.Addresses)+len(f.Cluster.Gateways)) // mostly one each
	for _, all := range f.Addresses {
		out = append(out, all...)
	}
	for _, g := range f.Cluster.Gateways {
		if g.Mode != topology.Local {
			for _, p := range g.IPs {
				out = append(out, p.Addr())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.DeleteFunc(slices.Compact(out), func(a netip.Addr) bool { return ipnet.Unusable(a) != "" })
}

// NodesByAddress are the switches of nodes by the nodes' addresses, also those of management ports.
func (f *Facts) NodesByAddress() map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	add := func(sw string, addrs []netip.Addr) {
		for _, a := range addrs {
			if !slices.Contains(out[a], sw) {
				out[a] = append(out[a], sw)
			}
		}
	}
	for sw, addrs := range f.Addresses {
		add(sw, addrs)
	}
	for _, c := range f.Chassis {
		if c.Node == "" {
			continue
		}
		for _, addrs := range f.NodePortAddresses(c) {
			add(c.Node, addrs)
		}
	}
	for sw := range f.Cluster.Nodes {
		add(sw, f.Management(sw))
	}
	return out
}
