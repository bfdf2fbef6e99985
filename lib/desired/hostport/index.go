package hostport

import (
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// An Index computes the rows of hostPorts from the facts about their nodes.
type Index struct {
	facts *facts.Index
	ports *ports.HostPorts
}

// NewIndex returns an index. all are the hostPorts of all pods.
func NewIndex(x *facts.Index, all *ports.HostPorts) *Index { return &Index{x, all} }

// Units implements feature.Feature: the rows are those of the pods' units.
func (x *Index) Units() []feature.Units { return nil }

// place returns the inputs for the hostPorts of a node's pods.
func place(f *facts.Facts, sw string, host facts.Chassis) Node {
	n := Node{Switch: sw}
	for _, both := range f.NodePortAddresses(host) {
		n.Addrs = append(n.Addrs, both...)
	}
	if subnets, ok := f.Cluster.Nodes[sw]; ok {
		n.Subnets, n.Management = subnets, f.Management(sw)
		n.Returns, n.Addrs = n.Management, append(n.Addrs, n.Management...)
	}
	for _, name := range host.Gateways {
		g := f.Cluster.Gateways[name]
		if g.Mode == topology.Local {
			continue
		}
		n.Gateway = append(n.Gateway, facts.Addrs(g.IPs)...)
		if g.Mode == topology.Bridge {
			n.Shared, n.Returns = append(n.Shared, names.GatewayRouter(name)), g.Join
		} else {
			n.Routers = append(n.Routers, names.GatewayRouter(name))
		}
	}
	n.Inside = f.Inside()
	for _, a := range f.Addresses[sw] {
		n.Inside = append(n.Inside, ipnet.Single(a))
	}
	return n
}

// hostsOf are the hosts of nodes, by switch. A host missing in the topology has no gateway.
func hostsOf(f *facts.Facts, switches ...string) map[string]facts.Chassis {
	out := map[string]facts.Chassis{}
	for _, sw := range switches {
		out[sw] = facts.Chassis{Node: sw}
	}
	for _, c := range f.Chassis {
		if _, asked := out[c.Node]; asked {
			out[c.Node] = c
		}
	}
	return out
}

// places are the places of nodes, by switch.
func places(f *facts.Facts, switches []string) map[string]Node {
	out := map[string]Node{}
	for sw, host := range hostsOf(f, switches...) {
		out[sw] = place(f, sw, host)
	}
	return out
}

// equalPlaces compares all of two nodes but Holder.
func equalPlaces(a, b Node) bool {
	return a.Switch == b.Switch && slices.Equal(a.Shared, b.Shared) &&
		slices.Equal(a.Management, b.Management) && slices.Equal(a.Subnets, b.Subnets) && slices.Equal(a.Addrs, b.Addrs) &&
		slices.Equal(a.Gateway, b.Gateway) && slices.Equal(a.Routers, b.Routers) &&
		slices.Equal(a.Returns, b.Returns) && slices.Equal(a.Inside, b.Inside)
}

// FactsChanged returns the units of pods with hostPorts on nodes with another place, or with other addresses.
func (x *Index) FactsChanged(c facts.Change) (touched []nb.Unit) {
	for _, sw := range c.Moved {
		touched = append(touched, x.ports.UnitsOn(sw)...)
	}
	if !c.Topology {
		return touched
	}
	all := x.ports.Switches()
	for sw := range facts.OtherKeys(places(c.Was, all), places(c.Now, all), equalPlaces) {
		touched = append(touched, x.ports.UnitsOn(sw)...)
	}
	return touched
}

// Of returns the inputs for the hostPorts of a pod with addresses. A refused pod has none.
func (x *Index) Of(p pod.Pod, addrs []netip.Addr) (Node, Pod) {
	sw := names.NodeSwitch(p.Node)
	n := place(x.facts.Now(), sw, hostsOf(x.facts.Now(), sw)[sw])
	n.Holder = func(a netip.Addr, h pod.HostPort) string { return x.ports.Holder(p, a, h) }
	if x.ports.Refused(p) != nil {
		p.HostPorts = nil
	}
	return n, Pod{Pod: p, Addrs: addrs}
}

// maxProblems is the maximum number of problems in the message for one pod.
const maxProblems = 4

// Rows returns the rows of a pod's hostPorts as far as possible. The rest is in the Problem.
func (x *Index) Rows(p pod.Pod, addrs []netip.Addr) ([]nb.Row, error) {
	if len(p.HostPorts)+len(p.Problems) == 0 {
		return nil, nil
	}
	if problem := x.ports.Refused(p); problem != nil {
		return nil, problem
	}
	n, hp := x.Of(p, addrs)
	rows := n.Rows(hp)
	problems := n.Problems(hp, maxProblems)
	if len(problems) == 0 {
		return rows, nil
	}
	reason := "PortConflict"
	if len(p.Problems) > 0 {
		reason = "BadHostPort"
	}
	return rows, &feature.Problem{Reason: reason, Message: strings.Join(problems, "; ")}
}
