// Package facts derives the facts about the network that all features share: the topology, the addresses of nodes, the
// hosts, the gateways that are down, the subnets of Services.
//
// Facts are an immutable value. An Index takes the inputs, and each change of them makes another value: features
// compare the two.
package facts

import (
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// Facts describe the network. Nobody changes them: values of different times share maps.
type Facts struct {
	Cluster topology.Cluster
	// UID identifies the Kubernetes cluster, "" while unknown.
	UID string
	// Nodes are the Nodes of Kubernetes, and Zones those with a zone, by name.
	Nodes map[string]bool
	Zones map[string]string
	// Switches are the switches of the topology's nodes, sorted.
	Switches []string
	// Addresses are those owned by each node, by the name of its switch.
	Addresses map[string][]netip.Addr
	// Chassis are the hosts of the topology by system-id, and ChassisOf their system-ids by node.
	Chassis   map[string]Chassis
	ChassisOf map[string][]string

	// Silent, Registered and Declared are reports about the hosts of gateways. Outages follow from them.
	Silent     Silent
	Registered Registered
	Declared   Declared
	Outages    Outages

	// Configured are the subnets of Services in the settings, CIDRs those of ServiceCIDRs by their names. Ranges are
	// those in use.
	Configured servicecidr.Ranges
	CIDRs      map[string]servicecidr.Ranges
	Ranges     servicecidr.Ranges

	management map[string][]netip.Addr // by switch
	control    map[string]bool         // switches of the nodes of the control plane with addresses
	reserved   reservations
}

// A Change is the step from one value of the facts to the next.
type Change struct {
	Was, Now     *Facts
	Topology     bool // the topology was put
	Nodes        bool // Nodes of Kubernetes come or go
	Surroundings bool // addresses of nodes, zones or subnets of Services may differ
	Gateways     bool // other gateways may be down
	Reservations bool // other addresses may be reserved
	// Decided are the switches of the nodes with addresses that were decided again, Moved those with another result.
	Decided, Moved []string
}

// Inside are the subnets of pods and of the join switch.
func (f *Facts) Inside() []netip.Prefix { return slices.Concat(f.Cluster.Subnets, f.Cluster.Join) }

// Management are the addresses of a node's management port, nil if the topology has no such node.
func (f *Facts) Management(sw string) []netip.Addr { return f.management[sw] }

// managementAddresses are the addresses of the management ports of a topology, by switch.
func managementAddresses(c topology.Cluster) map[string][]netip.Addr {
	out := make(map[string][]netip.Addr, len(c.Nodes))
	for sw, subnets := range c.Nodes {
		out[sw] = Addrs(topology.ManagementPort(subnets).IPs)
	}
	return out
}

// OwnAddresses are all addresses of a node for the pods of its switch: those of its management port, and its own. nil if
// the topology has no such node.
func (f *Facts) OwnAddresses(sw string) []netip.Addr {
	management := f.Management(sw)
	if management == nil {
		return nil
	}
	return slices.Concat(management, f.Addresses[sw])
}

// Addrs are the addresses of prefixes.
func Addrs(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr()
	}
	return out
}

// ChangedSubnets are the switches of the nodes with other subnets.
func (c Change) ChangedSubnets() map[string]bool {
	return OtherKeys(c.Was.Cluster.Nodes, c.Now.Cluster.Nodes, slices.Equal)
}

// OtherNetworks reports whether the cluster has another router, or other subnets of pods or of the join switch.
func (c Change) OtherNetworks() bool {
	a, b := c.Was.Cluster, c.Now.Cluster
	return a.Router != b.Router || !slices.Equal(a.Subnets, b.Subnets) || !slices.Equal(a.Join, b.Join)
}

// OtherKeys are the keys with different values in two maps.
func OtherKeys[K comparable, V any](a, b map[K]V, equal func(V, V) bool) map[K]bool {
	out := map[K]bool{}
	for k, was := range a {
		if now, has := b[k]; !has || !equal(was, now) {
			out[k] = true
		}
	}
	for k := range b {
		if _, had := a[k]; !had {
			out[k] = true
		}
	}
	return out
}

// Same reports whether two values are equal.
func Same[V comparable](a, b V) bool { return a == b }

// NodeOn is the switch of the node on the host with a system-id, "" if unknown.
func (f *Facts) NodeOn(id string) string { return f.Chassis[id].Node }

// Absent are the nodes with a chassis missing in the Southbound database, and that chassis.
func (f *Facts) Absent() map[string]string {
	absent := map[string]string{}
	for node, chassis := range f.Cluster.Chassis {
		if f.IsRegistered(chassis) == "no" {
			absent[node] = chassis
		}
	}
	return absent
}

// IsRegistered says whether a chassis is in the Southbound database: "yes", "no", or "unknown".
func (f *Facts) IsRegistered(chassis string) string {
	switch {
	case chassis == "":
		return "unknown"
	case f.Registered[chassis]:
		return "yes"
	case f.Registered.lacks(chassis):
		return "no"
	}
	return "unknown"
}

// RegisteredNode reports whether the host of a node is in the Southbound database.
func (f *Facts) RegisteredNode(node string) bool {
	return f.IsRegistered(f.Cluster.Chassis[names.NodeSwitch(node)]) == "yes"
}
