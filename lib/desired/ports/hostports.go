package ports

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// HostPorts decides between pods of a node with the same hostPort. Services come before pods.
type HostPorts struct {
	facts    *facts.Index
	services *Services
	claims   podClaims
	quotas   quotas
	byIP     map[netip.Addr]map[pod.Key]bool // the pods by their hostIP
	switches map[netip.Addr][]string         // see facts.Facts.NodesByAddress
	at       *facts.Facts                    // of switches: pods with hostPorts are rare
}

// NewHostPorts returns an index without pods.
func NewHostPorts(x *facts.Index, services *Services) *HostPorts {
	return &HostPorts{facts: x, services: services, claims: podClaims{}, quotas: quotas{}, byIP: map[netip.Addr]map[pod.Key]bool{}}
}

// podClaims are the pods with hostPorts, by port and by the node's switch; those with the better right come first.
type podClaims map[service.Claim]map[string][]podClaim

// A podClaim is the claim of a pod to a port of its node, at one or several addresses.
type podClaim struct {
	pod.Pod // only the fields used by Before
	ports   []pod.HostPort
}

func (c podClaim) compare(p pod.Pod) int {
	switch {
	case c.Key == p.Key && c.Created == p.Created:
		return 0
	case c.Before(p):
		return -1
	}
	return 1
}

// Change replaces the hostPorts of a pod, old, by those of now. Each is zero if there is no such pod. It
// returns the units of the pods that may gain or lose a hostPort.
func (x *HostPorts) Change(old, now pod.Pod) []nb.Unit {
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
	x.quotas.change(touched, old, now)
	return slices.Collect(maps.Keys(touched))
}

// portsOfNode are the hostPorts of a pod by port of its node.
func portsOfNode(p pod.Pod) map[service.Claim][]pod.HostPort {
	out := make(map[service.Claim][]pod.HostPort, len(p.HostPorts))
	for _, h := range p.HostPorts {
		port := service.Claim{Protocol: h.Protocol, Port: h.Port}
		out[port] = append(out[port], h)
	}
	return out
}

// rivals adds the units of the pods affected by the claim of p to a port of its node: those that would gain or lose an
// address, and those told another holder.
func (all podClaims) rivals(touched map[nb.Unit]bool, port service.Claim, p pod.Pod) {
	list := all[port][names.NodeSwitch(p.Node)]
	at, has := slices.BinarySearchFunc(list, p, podClaim.compare)
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
func (c podClaim) within(o podClaim) bool {
	for _, h := range c.ports {
		all := func(other pod.HostPort) bool { return !other.IP.IsValid() || h.IP.IsValid() && other.At(h.IP) }
		if !slices.ContainsFunc(o.ports, all) {
			return false
		}
	}
	return true
}

func (all podClaims) add(h pod.HostPort, sw string, p pod.Pod) {
	port := service.Claim{Protocol: h.Protocol, Port: h.Port}
	if all[port] == nil {
		all[port] = map[string][]podClaim{}
	}
	at, has := slices.BinarySearchFunc(all[port][sw], p, podClaim.compare)
	if !has {
		all[port][sw] = slices.Insert(all[port][sw], at, podClaim{Pod: pod.Pod{Key: p.Key, Created: p.Created}})
	}
	all[port][sw][at].ports = append(all[port][sw][at].ports, h)
}

func (all podClaims) drop(port service.Claim, sw string, p pod.Pod) {
	nodes := all[port]
	if nodes == nil {
		return // a new claim
	}
	if at, has := slices.BinarySearchFunc(nodes[sw], p, podClaim.compare); has {
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
func (x *HostPorts) Rivals(s service.Service) (touched []nb.Unit) {
	if len(x.claims) == 0 {
		return nil
	}
	for _, p := range s.Ports {
		if p.NodePort != 0 {
			for sw := range x.claims[service.Claim{Protocol: p.Protocol, Port: p.NodePort}] {
				touched = append(touched, x.claims.unitsOf(service.Claim{Protocol: p.Protocol, Port: p.NodePort}, sw)...)
			}
		}
		for _, a := range s.ExternalIPs {
			touched = append(touched, x.rivalsAt(a, service.Claim{Protocol: p.Protocol, Port: p.Port})...)
		}
		for _, in := range s.Ingress {
			touched = append(touched, x.rivalsAt(in.Addr, service.Claim{Protocol: p.Protocol, Port: p.Port})...)
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
func (x *HostPorts) RivalsOfEndpoints(of iter.Seq[service.Slice]) (touched []nb.Unit) {
	if len(x.claims) == 0 {
		return nil
	}
	for sl := range of {
		for _, p := range sl.Ports {
			for _, e := range sl.Endpoints {
				touched = append(touched, x.rivalsAt(e.Addr, service.Claim{Protocol: corev1.ProtocolTCP, Port: p.Port})...)
			}
		}
	}
	return touched
}

// switchesAt returns the switches of the nodes with an address, also of their management ports.
func (x *HostPorts) switchesAt(a netip.Addr) []string {
	if now := x.facts.Now(); x.at != now {
		x.at, x.switches = now, now.NodesByAddress()
	}
	return x.switches[a]
}

// rivalsAt returns the units of the pods with claims to a port at an address.
func (x *HostPorts) rivalsAt(a netip.Addr, port service.Claim) (touched []nb.Unit) {
	for rival := range x.byIP[a] {
		touched = append(touched, rival.Unit())
	}
	for _, sw := range x.switchesAt(a) {
		touched = append(touched, x.claims.unitsOf(port, sw)...)
	}
	return touched
}

// Holder names the Service or pod with a better right to a port of a node, at an address, than a pod, "" if
// there is none. A Service has a NodePort on all nodes and comes before pods, like kube-proxy beside the plugin
// portmap.
func (x *HostPorts) Holder(p pod.Pod, a netip.Addr, h pod.HostPort) string {
	for _, at := range []netip.Addr{{}, a} {
		if s, taken := x.services.Holder(service.Claim{Addr: at, Protocol: h.Protocol, Port: h.Port}); taken {
			return "service " + s.String()
		}
	}
	list := x.claims[service.Claim{Protocol: h.Protocol, Port: h.Port}][names.NodeSwitch(p.Node)]
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
func (all podClaims) unitsOf(port service.Claim, sw string) (units []nb.Unit) {
	for _, c := range all[port][sw] {
		units = append(units, c.Unit())
	}
	return units
}

// units returns the units of all pods of a switch with hostPorts.
func (all podClaims) units(sw string) (units []nb.Unit) {
	for _, nodes := range all {
		for _, c := range nodes[sw] {
			units = append(units, c.Unit())
		}
	}
	return units
}

// UnitsOn returns the units of the pods with hostPorts on the node of a switch.
func (x *HostPorts) UnitsOn(sw string) []nb.Unit { return x.claims.units(sw) }

// Switches lists the switches of the nodes with hostPorts.
func (x *HostPorts) Switches() []string {
	switches := map[string]bool{}
	for _, nodes := range x.claims {
		for sw := range nodes {
			switches[sw] = true
		}
	}
	return slices.Collect(maps.Keys(switches))
}
