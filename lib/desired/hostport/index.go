package hostport

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// An Index has the pods with hostPorts, and decides between them and Services.
type Index struct {
	facts    *facts.Index
	services *service.Claims
	claims   claims
	byIP     map[netip.Addr]map[pod.Key]bool // the pods by their hostIP
	switches map[netip.Addr][]string         // see facts.Facts.NodesByAddress
	at       *facts.Facts                    // of switches: pods with hostPorts are rare
}

// NewIndex returns an index without pods. services are the claims of Services to ports.
func NewIndex(x *facts.Index, services *service.Claims) *Index {
	return &Index{facts: x, services: services, claims: claims{}, byIP: map[netip.Addr]map[pod.Key]bool{}}
}

// claims are the pods with hostPorts, by port and by the node's switch; those with the better right come first.
type claims map[nodesPort]map[string][]claim

// A claim is the claim of a pod to a port of its node, at one or several addresses.
type claim struct {
	pod.Pod // only the fields used by Before
	ports   []pod.HostPort
}

func (c claim) compare(p pod.Pod) int {
	switch {
	case c.Key == p.Key && c.Created == p.Created:
		return 0
	case c.Before(p):
		return -1
	}
	return 1
}

// A nodesPort is a protocol and port of a node.
type nodesPort struct {
	corev1.Protocol
	Port uint16
}

// Units implements feature.Feature: the rows are those of the pods' units.
func (x *Index) Units() []feature.Units { return nil }

// Change replaces the hostPorts of a pod, old, by those of now. Each is zero if there is no such pod. It
// returns the units of the pods that may gain or lose a hostPort.
func (x *Index) Change(old, now pod.Pod) []nb.Unit {
	none := len(old.HostPorts)+len(old.Problems)+len(now.HostPorts)+len(now.Problems) == 0
	if none || old.Node == now.Node && old.Created == now.Created && slices.Equal(old.HostPorts, now.HostPorts) && slices.Equal(old.Problems, now.Problems) {
		return nil
	}
	for _, h := range old.HostPorts {
		if delete(x.byIP[h.IP], old.Key); len(x.byIP[h.IP]) == 0 {
			delete(x.byIP, h.IP)
		}
	}
	for _, h := range now.HostPorts {
		if x.byIP[h.IP] == nil {
			x.byIP[h.IP] = map[pod.Key]bool{}
		}
		x.byIP[h.IP][now.Key] = true
	}
	touched := map[nb.Unit]bool{cmp.Or(now.Key, old.Key).Unit(): true}
	before, after := portsOfNode(old), portsOfNode(now)
	same := old.Node == now.Node && old.Created == now.Created
	both := maps.Clone(before)
	maps.Copy(both, after)
	for port := range both {
		if same && slices.Equal(before[port], after[port]) {
			continue
		}
		x.claims.rivals(touched, port, old)
		x.claims.drop(port, names.NodeSwitch(old.Node), old)
		for _, h := range after[port] {
			x.claims.add(h, names.NodeSwitch(now.Node), now)
		}
		x.claims.rivals(touched, port, now)
	}
	return slices.Collect(maps.Keys(touched))
}

// portsOfNode are the hostPorts of a pod by port of its node.
func portsOfNode(p pod.Pod) map[nodesPort][]pod.HostPort {
	out := make(map[nodesPort][]pod.HostPort, len(p.HostPorts))
	for _, h := range p.HostPorts {
		port := nodesPort{h.Protocol, h.Port}
		out[port] = append(out[port], h)
	}
	return out
}

// MaxNamed is the largest number of pods with claims to a port of a node that are told the name of its holder.
// With more, a change of the holder touches only the pods that gain or lose an address.
const MaxNamed = 4

// rivals adds the units of the pods affected by the claim of p to a port of its node: those that would gain or lose an
// address, and those told another holder.
func (all claims) rivals(touched map[nb.Unit]bool, port nodesPort, p pod.Pod) {
	list := all[port][names.NodeSwitch(p.Node)]
	at, has := slices.BinarySearchFunc(list, p, claim.compare)
	if !has {
		return
	}
	rest := list[at+1:]
	switch own := list[at]; {
	case len(list) == MaxNamed+1:
		rest = list // all messages differ
	case len(list) > MaxNamed && slices.ContainsFunc(list[:at], own.within):
		return
	case len(list) > MaxNamed:
		if first := slices.IndexFunc(rest, own.within); first >= 0 {
			rest = rest[:first+1]
		}
	}
	for _, c := range rest {
		touched[c.Unit()] = true
	}
}

// within reports whether o claims the port at all addresses of c.
func (c claim) within(o claim) bool {
	for _, h := range c.ports {
		all := func(other pod.HostPort) bool { return !other.IP.IsValid() || h.IP.IsValid() && other.At(h.IP) }
		if !slices.ContainsFunc(o.ports, all) {
			return false
		}
	}
	return true
}

func (all claims) add(h pod.HostPort, sw string, p pod.Pod) {
	port := nodesPort{h.Protocol, h.Port}
	if all[port] == nil {
		all[port] = map[string][]claim{}
	}
	at, has := slices.BinarySearchFunc(all[port][sw], p, claim.compare)
	if !has {
		all[port][sw] = slices.Insert(all[port][sw], at, claim{Pod: pod.Pod{Key: p.Key, Created: p.Created}})
	}
	all[port][sw][at].ports = append(all[port][sw][at].ports, h)
}

func (all claims) drop(port nodesPort, sw string, p pod.Pod) {
	nodes := all[port]
	if nodes == nil {
		return // a new claim
	}
	if at, has := slices.BinarySearchFunc(nodes[sw], p, claim.compare); has {
		nodes[sw] = slices.Delete(nodes[sw], at, at+1)
	}
	if len(nodes[sw]) == 0 {
		delete(nodes, sw)
	}
	if len(nodes) == 0 {
		delete(all, port)
	}
}

// Rivals returns the units of pods with claims to frontends of a Service: its NodePorts on any node, and its other
// frontends at addresses of a node.
func (x *Index) Rivals(s service.Service) (touched []nb.Unit) {
	if len(x.claims) == 0 {
		return nil
	}
	for _, p := range s.Ports {
		if p.NodePort != 0 {
			for sw := range x.claims[nodesPort{p.Protocol, p.NodePort}] {
				touched = append(touched, x.claims.unitsOf(nodesPort{p.Protocol, p.NodePort}, sw)...)
			}
		}
		for _, a := range s.ExternalIPs {
			touched = append(touched, x.rivalsAt(a, nodesPort{p.Protocol, p.Port})...)
		}
		for _, in := range s.Ingress {
			touched = append(touched, x.rivalsAt(in.Addr, nodesPort{p.Protocol, p.Port})...)
		}
	}
	for _, a := range s.ClusterIPs { // with all ports
		for rival := range x.byIP[a] {
			touched = append(touched, rival.Unit())
		}
		for _, sw := range x.switchesAt(a) {
			touched = append(touched, x.claims.units(sw)...)
		}
	}
	return touched
}

// RivalsOfEndpoints returns the units of pods with claims to endpoints of some slices.
func (x *Index) RivalsOfEndpoints(of iter.Seq[service.Slice]) (touched []nb.Unit) {
	if len(x.claims) == 0 {
		return nil
	}
	for sl := range of {
		for _, p := range sl.Ports {
			for _, e := range sl.Endpoints {
				touched = append(touched, x.rivalsAt(e.Addr, nodesPort{corev1.ProtocolTCP, p.Port})...)
			}
		}
	}
	return touched
}

// switchesAt returns the switches of the nodes with an address, also of their management ports.
func (x *Index) switchesAt(a netip.Addr) []string {
	if now := x.facts.Now(); x.at != now {
		x.at, x.switches = now, now.NodesByAddress()
	}
	return x.switches[a]
}

// rivalsAt returns the units of the pods with claims to a port at an address.
func (x *Index) rivalsAt(a netip.Addr, port nodesPort) (touched []nb.Unit) {
	for rival := range x.byIP[a] {
		touched = append(touched, rival.Unit())
	}
	for _, sw := range x.switchesAt(a) {
		touched = append(touched, x.claims.unitsOf(port, sw)...)
	}
	return touched
}

// holder names the Service or pod with a better right to a port of a node, at an address, than a pod, "" if
// there is none. A Service has a NodePort on all nodes and comes before pods, like kube-proxy beside the plugin
// portmap.
func (x *Index) holder(p pod.Pod, a netip.Addr, h pod.HostPort) string {
	for _, at := range []netip.Addr{{}, a} {
		if s, taken := x.services.Holder(service.Claim{Addr: at, Protocol: h.Protocol, Port: h.Port}); taken {
			return "service " + s.String()
		}
	}
	list := x.claims[nodesPort{h.Protocol, h.Port}][names.NodeSwitch(p.Node)]
	for _, c := range list {
		if !c.Before(p) {
			break
		}
		if slices.ContainsFunc(c.ports, func(o pod.HostPort) bool { return o.At(a) }) {
			if len(list) > MaxNamed {
				return "another pod"
			}
			return "pod " + c.Key.String()
		}
	}
	return ""
}

// unitsOf returns the units of the pods of a switch with a claim to a port.
func (all claims) unitsOf(port nodesPort, sw string) (units []nb.Unit) {
	for _, c := range all[port][sw] {
		units = append(units, c.Unit())
	}
	return units
}

// units returns the units of all pods of a switch with hostPorts.
func (all claims) units(sw string) (units []nb.Unit) {
	for _, nodes := range all {
		for _, c := range nodes[sw] {
			units = append(units, c.Unit())
		}
	}
	return units
}

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
		n.Gateway, n.Routers = append(n.Gateway, facts.Addrs(g.IPs)...), append(n.Routers, names.GatewayRouter(name))
		if g.Mode == topology.Bridge {
			n.Shared, n.Returns = true, g.Join
		}
	}
	n.Inside = f.Inside()
	for _, a := range f.Addresses[sw] {
		n.Inside = append(n.Inside, netip.PrefixFrom(a, a.BitLen()))
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

// places are the places of all nodes with hostPorts, as text.
func (all claims) places(f *facts.Facts) map[string]string {
	switches := map[string]bool{}
	for _, nodes := range all {
		for sw := range nodes {
			switches[sw] = true
		}
	}
	texts := map[string]string{}
	for sw, host := range hostsOf(f, slices.Collect(maps.Keys(switches))...) {
		texts[sw] = fmt.Sprint(place(f, sw, host))
	}
	return texts
}

// Look returns the units of pods with hostPorts on nodes with another place, or with other addresses.
func (x *Index) Look(c facts.Change) (touched []nb.Unit) {
	for _, sw := range c.Moved {
		touched = append(touched, x.claims.units(sw)...)
	}
	if !c.Topology {
		return touched
	}
	for sw := range facts.OtherKeys(x.claims.places(c.Was), x.claims.places(c.Now), facts.Same) {
		touched = append(touched, x.claims.units(sw)...)
	}
	return touched
}

// Of returns the inputs for the hostPorts of a pod with addresses.
func (x *Index) Of(p pod.Pod, addrs []netip.Addr) (Node, Pod) {
	sw := names.NodeSwitch(p.Node)
	n := place(x.facts.Now(), sw, hostsOf(x.facts.Now(), sw)[sw])
	n.Holder = func(a netip.Addr, h pod.HostPort) string { return x.holder(p, a, h) }
	return n, Pod{Pod: p, Addrs: addrs}
}

// maxProblems is the maximum number of problems in the message for one pod.
const maxProblems = 4

// Rows returns the rows of a pod's hostPorts as far as possible. The rest is in the Problem.
func (x *Index) Rows(p pod.Pod, addrs []netip.Addr) ([]nb.Row, error) {
	if len(p.HostPorts)+len(p.Problems) == 0 {
		return nil, nil
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
