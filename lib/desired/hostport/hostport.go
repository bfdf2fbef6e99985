// Package hostport computes the OVN rows for hostPorts of pods. A hostPort is like a
// NodePort of one node with one endpoint, which sees the client's address.
//
// Pods reach it by the load balancer of their own switch, and clients outside by that
// of the router of a gateway with a NIC. For all other clients the node's kernel does
// the DNAT: see package nodeport.
package hostport

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Pod is a pod and its addresses.
type Pod struct {
	pod.Pod
	Addrs []netip.Addr // at most one of each family
}

// Addr returns the pod's address of the family of a.
func (p Pod) Addr(a netip.Addr) (netip.Addr, bool) {
	i := slices.IndexFunc(p.Addrs, func(own netip.Addr) bool { return own.Is4() == a.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return p.Addrs[i], true
}

// A Node holds the inputs for the hostPorts of a pod, other than the pod.
type Node struct {
	Switch string
	// Management are the addresses of its management port, and Subnets those of its
	// pods.
	Management []netip.Addr
	Subnets    []netip.Prefix
	// Addrs are the node's addresses that are reachable from other hosts or pods,
	// including those of its gateway and of its management port.
	Addrs []netip.Addr
	// Gateway are the addresses of gateways with a NIC on the same host. Shared are the
	// names of the routers with the host's NIC, and Routers those with one of their own.
	Gateway         []netip.Addr
	Shared, Routers []string
	// Returns are the next hops of answers to clients outside, where DNAT must be
	// reversed: the gateway that shares the host's NIC, else the host.
	Returns []netip.Addr
	// Inside are the subnets and addresses of clients for which Returns is not used.
	Inside []netip.Prefix
	// Holder returns the owner of a port at an address, such as "service default/web",
	// if it takes precedence over the pod, else "".
	Holder func(netip.Addr, pod.HostPort) string
}

// A Frontend is a frontend: a hostPort at one address of the node.
type Frontend struct {
	pod.HostPort
	At, To netip.AddrPort
}

// Frontends lists the frontends of p: its hostPorts at each of their addresses, loopback
// included.
func (n Node) Frontends(p Pod) []Frontend {
	var out []Frontend
	for _, h := range p.HostPorts {
		out = append(out, n.at(p, h, n.where(h))...)
	}
	return out
}

// where returns the addresses of the node at which h may be.
func (n Node) where(h pod.HostPort) []netip.Addr {
	if h.IP.IsValid() && !h.IP.IsUnspecified() {
		return []netip.Addr{h.IP}
	}
	return slices.Concat(n.Addrs, loopback())
}

// loopback returns the addresses reachable from the node only.
func loopback() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// at returns the frontends of a hostPort at some addresses, without those of other owners.
func (n Node) at(p Pod, h pod.HostPort, addrs []netip.Addr) []Frontend {
	var out []Frontend
	for _, a := range addrs {
		if to, ok := p.Addr(a); ok && h.At(a) && n.Holder(a, h) == "" {
			out = append(out, Frontend{h, netip.AddrPortFrom(a, h.Port), netip.AddrPortFrom(to, h.Target)})
		}
	}
	return out
}

// Problems describes the invalid hostPorts of p, and those with another owner. It
// returns the first ones, at most most.
func (n Node) Problems(p Pod, most int) []string {
	problems := slices.Clone(p.Problems[:min(most, len(p.Problems))])
	for _, h := range p.HostPorts {
		if len(problems) == most {
			break
		}
		for _, a := range n.where(h) {
			if !h.At(a) {
				continue
			}
			if holder := n.Holder(a, h); holder != "" {
				problems = append(problems, fmt.Sprintf("hostPort %s of pod %s is in use by %s on node %s: choose another one", h, p.Key, holder, p.Node))
				break
			}
		}
	}
	return problems
}

// Rows returns the OVN rows for the hostPorts of p. Their number does not depend on the
// number of hostPorts and nodes. N is the pod's unit:
//
//	N/hostport/tcp          load balancer of all node switches
//	N/hostport/tcp/gateway  load balancer of the host's gateway router only: other
//	                        routers would take its answers to this host for
//	                        connections
//	N/hostport/tcp/gateway/own
//	                        that of routers with NICs of their own beside one with
//	                        the host's
//	N/hostport/return4      routes answers to clients outside
//	N/hostport/inside4      exempts answers to clients inside
//	N/hostport/to-node, N/hostport/sent-back
//	                        accept packets from other pods of the node to its
//	                        management address
func (n Node) Rows(p Pod) []nb.Row {
	var rows []nb.Row
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		name := balancerName(p, protocol)
		if vips := n.vips(p, protocol, n.Addrs); len(vips) > 0 {
			rows = append(rows, balancer(name, protocol, names.SwitchLoadBalancerGroup, vips))
		}
		if vips := n.vips(p, protocol, n.Gateway); len(vips) > 0 {
			rows = append(rows, n.atGateways(name, protocol, vips)...)
		}
	}
	for _, hop := range n.Returns {
		rows = append(rows, n.answers(p, hop)...)
	}
	return append(rows, n.sentOn(p)...)
}

// sentOn returns the ACLs for packets from pods of the same node to hostPorts at the
// address of its management port. Their switch changes the address, but not the MAC,
// which is the node's: so the node gets the packet, and sends it on to p. The node's own packets to p are tracked.
func (n Node) sentOn(p Pod) []nb.Row {
	var attempts []string
	for _, a := range n.Management {
		there := func(h pod.HostPort) bool { return h.At(a) && n.Holder(a, h) == "" }
		own, ok := p.Addr(a)
		ports := matchPorts(p, "dst", there)
		i := slices.IndexFunc(n.Subnets, func(s netip.Prefix) bool { return s.Contains(a) })
		if ok && i >= 0 && ports != "" {
			f := family(a)
			attempts = append(attempts, fmt.Sprintf("%s.src == %s && %s.src != %s && %s.dst == %s && %s", f, n.Subnets[i].Masked(), f, a, f, own, ports))
		}
	}
	if len(attempts) == 0 {
		return nil
	}
	return guard.SentOn(n.Switch, fmt.Sprintf("%s/hostport", p.Unit()), attempts...)
}

// family returns OVN's keyword for an address's family.
func family(a netip.Addr) string {
	if a.Is4() {
		return "ip4"
	}
	return "ip6"
}

// atGateways returns the load balancers of the routers of the host's gateways. A router with the host's NIC keeps
// clients' addresses: answers return to it. Another one replaces them by its own.
func (n Node) atGateways(name string, protocol corev1.Protocol, vips map[string]string) (rows []nb.Row) {
	for _, g := range n.gateways() {
		row := balancer(name+g.suffix, protocol, "", vips)
		row.In = nil
		for _, r := range g.routers {
			row.In = append(row.In, nb.Ref{Table: nbdb.LogicalRouterTable, ID: r, Column: "load_balancer"})
		}
		if g.shared {
			row.Model.(*nbdb.LoadBalancer).Options["skip_snat"] = "true"
		}
		rows = append(rows, row)
	}
	return rows
}

// routers are those of a host with one load balancer. suffix is the end of its name.
type routers struct {
	suffix  string
	routers []string
	shared  bool
}

// gateways returns the routers of the host's gateways with NICs.
func (n Node) gateways() (out []routers) {
	suffix := "/gateway"
	if len(n.Shared) > 0 {
		out, suffix = append(out, routers{suffix, n.Shared, true}), suffix+"/own"
	}
	if len(n.Routers) > 0 {
		out = append(out, routers{suffix, n.Routers, false})
	}
	return out
}

func balancerName(p Pod, protocol corev1.Protocol) string {
	return fmt.Sprintf("%s/hostport/%s", p.Unit(), strings.ToLower(string(protocol)))
}

// Balancers lists the names of the load balancers of a frontend.
func (n Node) Balancers(p Pod, d Frontend) []string {
	var out []string
	name := balancerName(p, d.Protocol)
	if slices.Contains(n.Addrs, d.At.Addr()) {
		out = append(out, name)
	}
	if slices.Contains(n.Gateway, d.At.Addr()) {
		for _, g := range n.gateways() {
			out = append(out, name+g.suffix)
		}
	}
	return out
}

// vips returns the frontends of one protocol at some addresses, as in the column vips of
// Load_Balancer. Of two hostPorts of the pod at one frontend, the first has it.
func (n Node) vips(p Pod, protocol corev1.Protocol, at []netip.Addr) map[string]string {
	vips := map[string]string{}
	for _, h := range p.HostPorts {
		if h.Protocol != protocol {
			continue
		}
		for _, d := range n.at(p, h, at) {
			if vips[d.At.String()] == "" {
				vips[d.At.String()] = d.To.String()
			}
		}
	}
	return vips
}

func balancer(name string, protocol corev1.Protocol, group string, vips map[string]string) nb.Row {
	lower := strings.ToLower(string(protocol))
	lb := &nbdb.LoadBalancer{Name: names.LoadBalancer(name), Protocol: &lower, Vips: vips, Options: map[string]string{}}
	if protocol == corev1.ProtocolUDP {
		lb.Options["ct_flush"] = "true" // or a client would continue to send to a deleted pod
	}
	return nb.Row{
		Table: nbdb.LoadBalancerTable, ID: name, Model: lb,
		In: []nb.Ref{{Table: nbdb.LoadBalancerGroupTable, ID: group, Column: "load_balancer"}},
	}
}

// returnPriority is above the priority of Services' policies for the same endpoint, and
// insidePriority is above returnPriority. There are two policies, because one match with
// "!=" and several subnets becomes a flow for each combination of their bits: with two
// subnets and one address of IPv6, 400 000.
const returnPriority, insidePriority = 3001, 3002

// answers returns the router policies that route p's answers to clients outside to hop:
// none if no client outside can reach the pod in that family.
func (n Node) answers(p Pod, hop netip.Addr) []nb.Row {
	own, ok := p.Addr(hop)
	from := matchPorts(p, "src", func(h pod.HostPort) bool { return h.Outside(hop) })
	if !ok || from == "" {
		return nil
	}
	family := family(hop)
	match := fmt.Sprintf("%s.src == %s && %s", family, own, from)
	row := func(kind, match string, policy nbdb.LogicalRouterPolicy) nb.Row {
		policy.Match = match
		return nb.Row{
			Table: nbdb.LogicalRouterPolicyTable, ID: fmt.Sprintf("%s/hostport/%s%s", p.Unit(), kind, family[2:]), Model: &policy,
			In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
		}
	}
	rows := []nb.Row{row("return", match, nbdb.LogicalRouterPolicy{Priority: returnPriority, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{hop.String()}})}
	if inside := n.inside(hop); inside != "" {
		rows = append(rows, row("inside", match+fmt.Sprintf(" && %s.dst == {%s}", family, inside), nbdb.LogicalRouterPolicy{Priority: insidePriority, Action: nbdb.LogicalRouterPolicyActionAllow}))
	}
	return rows
}

// inside returns the subnets and addresses inside of one family, as a list for a match.
func (n Node) inside(family netip.Addr) string {
	var words []string
	for _, s := range n.Inside {
		switch {
		case s.Addr().Is4() != family.Is4():
		case s.IsSingleIP():
			words = append(words, s.Addr().String())
		default:
			words = append(words, s.String())
		}
	}
	return strings.Join(words, ", ")
}

// matchPorts matches the targets of some hostPorts of p as field "src" or "dst". It is "" if there are none.
func matchPorts(p Pod, field string, some func(pod.HostPort) bool) string {
	ports := map[corev1.Protocol][]uint16{}
	for _, h := range p.HostPorts {
		if some(h) {
			ports[h.Protocol] = append(ports[h.Protocol], h.Target)
		}
	}
	for protocol, of := range ports {
		slices.Sort(of)
		ports[protocol] = slices.Compact(of)
	}
	return nb.MatchPorts(field, ports)
}
