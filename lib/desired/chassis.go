package desired

import (
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
)

// A chassis is a host of OVN: a node, gateways, or both.
type chassis struct {
	node     string // "" if it is none
	gateways []string
}

// allChassis lists the hosts of a topology by their system-id.
func allChassis(all topology.Cluster) map[string]chassis {
	out := map[string]chassis{}
	for node, id := range all.Chassis {
		if all.Nodes[node] != nil {
			out[id] = chassis{node: node}
		}
	}
	for _, name := range all.GatewayNames() {
		g := all.Gateways[name]
		c := out[g.Chassis]
		if c.node == "" {
			c.node = g.Node
		}
		c.gateways = append(c.gateways, name)
		out[g.Chassis] = c
	}
	return out
}

// addresses are the addresses of a host for NodePorts, by family.
func (w *World) addresses(c chassis) (out [2][]netip.Addr) {
	add := func(a netip.Addr) {
		f := 0
		if !a.Is4() {
			f = 1
		}
		if !slices.Contains(out[f], a) {
			out[f] = append(out[f], a)
		}
	}
	for _, a := range w.hosts[c.node] {
		if ipnet.Unusable(a) != "" {
			continue
		}
		add(a)
	}
	for _, a := range c.gatewayAddrs(w.cluster) {
		add(a)
	}
	return out
}

// nodePortHosts are the addresses of all hosts for NodePorts, sorted.
func (w *World) nodePortHosts() (out []netip.Addr) {
	for _, all := range w.hosts {
		out = append(out, all...)
	}
	for _, c := range w.services.chassis {
		for _, all := range w.addresses(c) {
			out = append(out, all...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.DeleteFunc(slices.Compact(out), func(a netip.Addr) bool { return ipnet.Unusable(a) != "" })
}

// ChassisPrefix starts the units of hosts.
const ChassisPrefix = "chassis/"

// ChassisUnit is the unit of the variables of a host. id is its system-id.
func ChassisUnit(id string) nb.Unit { return nb.Unit(ChassisPrefix + id) }

// chassisOf is the inverse of ChassisUnit. It reports false for units of other kinds.
func chassisOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), ChassisPrefix) }

// chassisRows returns the variables of a host.
func (w *World) chassisRows(id string) ([]nb.Row, error) {
	c, ok := w.services.chassis[id]
	if !ok {
		return nil, nil
	}
	variables := map[string]string{}
	for f, addrs := range w.addresses(c) {
		for i, a := range addrs {
			variables[service.AddressVariable(f, i)] = a.String()
		}
		for i := len(addrs); i < w.services.around.Addresses[f]; i++ {
			variables[service.AddressVariable(f, i)] = service.NoAddress(f).String()
		}
	}
	for k := range w.services.onNode[c.node] {
		for _, v := range w.local(k, c.node).variables {
			variables[v.name] = v.value
		}
	}
	if len(variables) == 0 {
		return nil, nil
	}
	return []nb.Row{service.VariablesRow(id, variables)}, nil
}

func (w *World) allChassisUnits() []nb.Unit { return unitsOf(w.services.chassis, ChassisUnit) }

// changedChassis returns the units of chassis added, removed, or with other addresses of gateways. old and before are
// of the previous topology.
func (w *World) changedChassis(old map[string]chassis, before topology.Cluster) []nb.Unit {
	now := w.services.chassis
	var touched []nb.Unit
	for id := range merged(old, now) {
		if o, n := old[id], now[id]; o.node != n.node || !slices.Equal(o.gatewayAddrs(before), n.gatewayAddrs(w.cluster)) {
			touched = append(touched, ChassisUnit(id))
		}
	}
	return touched
}

// gatewayAddrs are the addresses for NodePorts of a chassis' gateways in a topology.
func (c chassis) gatewayAddrs(in topology.Cluster) (out []netip.Addr) {
	for _, name := range c.gateways {
		if g := in.Gateways[name]; g.Mode != topology.Local {
			for _, p := range g.IPs {
				out = append(out, p.Addr())
			}
		}
	}
	return out
}

// chassisByNode are the system-ids of the chassis of each node.
func chassisByNode(all map[string]chassis) map[string][]string {
	out := map[string][]string{}
	for id, c := range all {
		if c.node != "" {
			out[c.node] = append(out[c.node], id)
		}
	}
	return out
}

// chassisUnits returns the units of the known chassis of some nodes.
func (w *World) chassisUnits(nodes ...string) []nb.Unit {
	var units []nb.Unit
	for _, node := range nodes {
		for _, id := range w.services.chassisOf[node] {
			units = append(units, ChassisUnit(id))
		}
	}
	return units
}

// switchesAt returns the switches of the nodes with an address, also of their management ports.
func (w *World) switchesAt(a netip.Addr) []string {
	if w.services.switchesAt == nil {
		w.services.switchesAt = w.nodesByAddress()
	}
	return w.services.switchesAt[a]
}

// nodesByAddress are the switches of nodes by the nodes' addresses, also those of management ports.
func (w *World) nodesByAddress() map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	add := func(sw string, addrs []netip.Addr) {
		for _, a := range addrs {
			if !slices.Contains(out[a], sw) {
				out[a] = append(out[a], sw)
			}
		}
	}
	for sw, addrs := range w.hosts {
		add(sw, addrs)
	}
	for _, c := range w.services.chassis {
		if c.node == "" {
			continue
		}
		for _, addrs := range w.addresses(c) {
			add(c.node, addrs)
		}
	}
	for sw, subnets := range w.cluster.Nodes {
		add(sw, addrs(topology.ManagementPort(subnets).IPs))
	}
	return out
}
