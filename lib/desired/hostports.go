package desired

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// hostPorts are the pods with hostPorts, by port and by the node's switch; those with the better right come first.
type hostPorts map[nodesPort]map[string][]hostClaim

// A hostClaim is the claim of a pod to a port of its node, at one or several addresses.
type hostClaim struct {
	pod.Pod // only the fields used by Before
	ports   []pod.HostPort
}

func (c hostClaim) compare(p pod.Pod) int {
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

// changeHostPorts replaces the hostPorts of a pod, old, by those of now. Each is zero if there is no such pod. It
// returns the units of the pods that may gain or lose a hostPort.
func (w *World) changeHostPorts(old, now pod.Pod) []nb.Unit {
	none := len(old.HostPorts)+len(old.Problems)+len(now.HostPorts)+len(now.Problems) == 0
	if none || old.Node == now.Node && old.Created == now.Created && slices.Equal(old.HostPorts, now.HostPorts) && slices.Equal(old.Problems, now.Problems) {
		return nil
	}
	for _, h := range old.HostPorts {
		if delete(w.hostIPs[h.IP], old.Key); len(w.hostIPs[h.IP]) == 0 {
			delete(w.hostIPs, h.IP)
		}
	}
	for _, h := range now.HostPorts {
		if w.hostIPs[h.IP] == nil {
			w.hostIPs[h.IP] = map[pod.Key]bool{}
		}
		w.hostIPs[h.IP][now.Key] = true
	}
	touched := map[nb.Unit]bool{cmp.Or(now.Key, old.Key).Unit(): true}
	before, after := portsOfNode(old), portsOfNode(now)
	same := old.Node == now.Node && old.Created == now.Created
	for port := range merged(before, after) {
		if same && slices.Equal(before[port], after[port]) {
			continue
		}
		w.hostPorts.rivals(touched, port, old)
		w.hostPorts.drop(port, names.NodeSwitch(old.Node), old)
		for _, h := range after[port] {
			w.hostPorts.add(h, names.NodeSwitch(now.Node), now)
		}
		w.hostPorts.rivals(touched, port, now)
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

// maxNamedPods is the largest number of pods with claims to a port of a node that are told the name of its holder.
// With more, a change of the holder touches only the pods that gain or lose an address.
const maxNamedPods = 4

// rivals adds the units of the pods affected by the claim of p to a port of its node: those that would gain or lose an
// address, and those told another holder.
func (all hostPorts) rivals(touched map[nb.Unit]bool, port nodesPort, p pod.Pod) {
	list := all[port][names.NodeSwitch(p.Node)]
	at, has := slices.BinarySearchFunc(list, p, hostClaim.compare)
	if !has {
		return
	}
	rest := list[at+1:]
	switch own := list[at]; {
	case len(list) == maxNamedPods+1:
		rest = list // all messages differ
	case len(list) > maxNamedPods && slices.ContainsFunc(list[:at], own.within):
		return
	case len(list) > maxNamedPods:
		if first := slices.IndexFunc(rest, own.within); first >= 0 {
			rest = rest[:first+1]
		}
	}
	for _, c := range rest {
		touched[c.Unit()] = true
	}
}

// within reports whether o claims the port at all addresses of c.
func (c hostClaim) within(o hostClaim) bool {
	for _, h := range c.ports {
		all := func(other pod.HostPort) bool { return !other.IP.IsValid() || h.IP.IsValid() && other.At(h.IP) }
		if !slices.ContainsFunc(o.ports, all) {
			return false
		}
	}
	return true
}

func (all hostPorts) add(h pod.HostPort, sw string, p pod.Pod) {
	port := nodesPort{h.Protocol, h.Port}
	if all[port] == nil {
		all[port] = map[string][]hostClaim{}
	}
	at, has := slices.BinarySearchFunc(all[port][sw], p, hostClaim.compare)
	if !has {
		all[port][sw] = slices.Insert(all[port][sw], at, hostClaim{Pod: pod.Pod{Key: p.Key, Created: p.Created}})
	}
	all[port][sw][at].ports = append(all[port][sw][at].ports, h)
}

func (all hostPorts) drop(port nodesPort, sw string, p pod.Pod) {
	nodes := all[port]
	if nodes == nil {
		return // a new claim
	}
	if at, has := slices.BinarySearchFunc(nodes[sw], p, hostClaim.compare); has {
		nodes[sw] = slices.Delete(nodes[sw], at, at+1)
	}
	if len(nodes[sw]) == 0 {
		delete(nodes, sw)
	}
	if len(nodes) == 0 {
		delete(all, port)
	}
}

// hostPortRivals returns the units of pods with claims to frontends of a Service: its NodePorts on any node, and its
// other frontends at addresses of a node.
func (w *World) hostPortRivals(k service.Key) []nb.Unit {
	s := w.services.all[k]
	if s == nil || len(w.hostPorts) == 0 {
		return nil
	}
	touched := w.apiServerRivals(k)
	for _, p := range s.Ports {
		if p.NodePort != 0 {
			for sw := range w.hostPorts[nodesPort{p.Protocol, p.NodePort}] {
				touched = append(touched, w.hostPorts.unitsOf(nodesPort{p.Protocol, p.NodePort}, sw)...)
			}
		}
		for _, a := range s.ExternalIPs {
			touched = append(touched, w.rivalsAt(a, nodesPort{p.Protocol, p.Port})...)
		}
		for _, in := range s.Ingress {
			touched = append(touched, w.rivalsAt(in.Addr, nodesPort{p.Protocol, p.Port})...)
		}
	}
	for _, a := range s.ClusterIPs { // with all ports
		for rival := range w.hostIPs[a] {
			touched = append(touched, rival.Unit())
		}
		for _, sw := range w.switchesAt(a) {
			touched = append(touched, w.hostPorts.units(sw)...)
		}
	}
	return touched
}

// apiServerRivals returns the units of pods with claims to an endpoint of the API server, if k is its Service.
func (w *World) apiServerRivals(k service.Key) (touched []nb.Unit) {
	s := w.services.all[k]
	if s == nil || k != service.APIServer() || len(w.hostPorts) == 0 {
		return nil
	}
	for _, sl := range s.slices {
		for _, p := range sl.Ports {
			for _, e := range sl.Endpoints {
				touched = append(touched, w.rivalsAt(e.Addr, nodesPort{corev1.ProtocolTCP, p.Port})...)
			}
		}
	}
	return touched
}

// rivalsAt returns the units of the pods with claims to a port at an address.
func (w *World) rivalsAt(a netip.Addr, port nodesPort) (touched []nb.Unit) {
	for rival := range w.hostIPs[a] {
		touched = append(touched, rival.Unit())
	}
	for _, sw := range w.switchesAt(a) {
		touched = append(touched, w.hostPorts.unitsOf(port, sw)...)
	}
	return touched
}

// hostPortHolder names the Service or pod with a better right to a port of a node, at an address, than a pod, "" if
// there is none. A Service has a NodePort on all nodes and comes before pods, like kube-proxy beside the plugin
// portmap.
func (w *World) hostPortHolder(p pod.Pod, a netip.Addr, h pod.HostPort) string {
	for _, at := range []netip.Addr{{}, a} {
		if s, taken := w.services.claims.Holder(service.Claim{Addr: at, Protocol: h.Protocol, Port: h.Port}); taken {
			return "service " + s.String()
		}
	}
	list := w.hostPorts[nodesPort{h.Protocol, h.Port}][names.NodeSwitch(p.Node)]
	for _, c := range list {
		if !c.Before(p) {
			break
		}
		if slices.ContainsFunc(c.ports, func(o pod.HostPort) bool { return o.At(a) }) {
			if len(list) > maxNamedPods {
				return "another pod"
			}
			return "pod " + c.Key.String()
		}
	}
	return ""
}

// unitsOf returns the units of the pods of a switch with a claim to a port.
func (all hostPorts) unitsOf(port nodesPort, sw string) (units []nb.Unit) {
	for _, c := range all[port][sw] {
		units = append(units, c.Unit())
	}
	return units
}

// units returns the units of all pods of a switch with hostPorts.
func (all hostPorts) units(sw string) (units []nb.Unit) {
	for _, nodes := range all {
		for _, c := range nodes[sw] {
			units = append(units, c.Unit())
		}
	}
	return units
}

// place returns the inputs for the hostPorts of a node's pods.
func place(f *facts.Facts, sw string, host facts.Chassis) hostport.Node {
	n := hostport.Node{Switch: sw}
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
func (all hostPorts) places(f *facts.Facts) map[string]string {
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

// lookHostPorts returns the units of pods with hostPorts on nodes with another place, or with other addresses.
func (w *World) lookHostPorts(c facts.Change) (touched []nb.Unit) {
	for _, sw := range c.Moved {
		touched = append(touched, w.hostPorts.units(sw)...)
	}
	if !c.Topology {
		return touched
	}
	for sw := range facts.OtherKeys(w.hostPorts.places(c.Was), w.hostPorts.places(c.Now), facts.Same) {
		touched = append(touched, w.hostPorts.units(sw)...)
	}
	return touched
}

// hostPortsOf returns the inputs for the hostPorts of a pod with addresses.
func (w *World) hostPortsOf(p *podState) (hostport.Node, hostport.Pod) {
	sw := names.NodeSwitch(p.Node)
	n := place(w.Facts(), sw, hostsOf(w.Facts(), sw)[sw])
	n.Holder = func(a netip.Addr, h pod.HostPort) string { return w.hostPortHolder(p.Pod, a, h) }
	return n, hostport.Pod{Pod: p.Pod, Addrs: facts.Addrs(p.addrs.IPs)}
}

// hostPortRows returns the rows of a pod's hostPorts as far as possible. The rest is in the Problem.
func (w *World) hostPortRows(p *podState) ([]nb.Row, error) {
	if len(p.HostPorts)+len(p.Problems) == 0 {
		return nil, nil
	}
	n, hp := w.hostPortsOf(p)
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

// HostPorts returns the pod of unit u and its place, if the pod has hostPorts and addresses.
func (w *World) HostPorts(u nb.Unit) (hostport.Node, hostport.Pod, bool) {
	k, _ := pod.KeyOf(u)
	p := w.pods[k]
	if p == nil || len(p.HostPorts)+len(p.Problems) == 0 || p.addrs.MAC == "" {
		return hostport.Node{}, hostport.Pod{}, false
	}
	n, hp := w.hostPortsOf(p)
	return n, hp, true
}
