// Package bridgeflows computes the flows of the bridge shared by a host and its gateway router: for clients outside of
// Services and hostPorts, and for the host itself.
package bridgeflows

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/ipnet"
)

// Cookie marks our flows: "k8sgw" in ASCII.
const Cookie = 0x6b38736777

// A Bridge is shared by a host and its gateway router. Both have its MAC and its
// addresses.
type Bridge struct {
	Physical, Overlay flow.Port // the NIC, and the patch port to br-int
	MAC               string    // of the bridge
	Zone              int       // of conntrack, for the connections of pods
	// Addrs are the node's addresses on the bridge. Router are the gateway router's among them, and NodePorts those at
	// which it serves NodePorts: at the others the host does.
	Addrs, Router, NodePorts []netip.Addr
	// Pods are the known subnets of the cluster.
	Pods []netip.Prefix
}

// Served returns those of a bridge's addresses at which the gateway router serves NodePorts: its own, and those that the
// Node reports, as OVN has NodePorts there, too.
func Served(addrs, router, reported []netip.Addr) (out []netip.Addr) {
	for _, a := range addrs {
		if slices.Contains(router, a) || hasWay(router, a) && slices.Contains(reported, a) {
			out = append(out, a)
		}
	}
	return out
}

// hasWay reports whether a gateway router has an address of the family of a, and so a way back to clients there.
func hasWay(router []netip.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(router, func(r netip.Addr) bool { return r.Is4() == a.Is4() })
}

// Tables and priorities.
const (
	classify = 0 // where packets start
	tracked  = 1 // packets from the NIC, perhaps of pods' connections

	mistaken = 120 // the port numbers of NIC and router are swapped
	first    = 110 // ARP and neighbour discovery
	asked    = 105 // ARP and neighbour discovery to all
	frontend = 100
	closed   = 95 // refuses clients outside the source ranges
	routed   = 60 // for pods' own addresses
	later    = 50 // all other packets from the NIC
	// With any port numbers:
	fromHost   = 12 // packets from the host are forwarded
	fromRouter = 11 // NORMAL must not learn the host's MAC from other ports
	toHost     = 10 // packets to the shared MAC go to the host
)

// neighborDiscovery are the ICMPv6 types of RFC 4861: solicitations and
// advertisements of routers and neighbours. Conntrack does not follow them.
var neighborDiscovery = [...]uint8{133, 134, 135, 136}

// Flows returns the flows of a bridge, without the default flow, NORMAL for all
// packets, on which they rely.
func Flows(b Bridge, frontends service.List, pods []hostport.Pod) []flow.Flow {
	return new(Kept).Flows(b, frontends, pods)
}

// Kept has the flows of Services, kept to list the flows of a bridge again after a change: only changed Services cost
// something. The zero value has none. One goroutine calls the method.
type Kept struct {
	bridge   Bridge
	services service.Kept[[]flow.Flow]
	// flows are those of the last call, made of parts.
	flows []flow.Flow
	parts [][]flow.Flow
}

// Flows returns the same as the function Flows. The result may not be changed.
func (k *Kept) Flows(b Bridge, frontends service.List, pods []hostport.Pod) []flow.Flow {
	if !reflect.DeepEqual(k.bridge, b) {
		*k = Kept{bridge: b}
	}
	parts := append(slices.Clone(k.services.Of(frontends, b.services)), b.hostPorts(frontends, pods))
	if k.flows != nil && slices.EqualFunc(parts, k.parts, slices.Equal) { // mostly: endpoints change no flow
		return k.flows
	}
	flows, taken := b.base(), make(map[flow.Key]bool, len(frontends))
	for _, of := range parts {
		for _, f := range of {
			if !taken[f.Key()] {
				flows = append(flows, f)
			}
			taken[f.Key()] = true
		}
	}
	k.flows, k.parts = flows, parts
	return flows
}

// Base returns the flows that do not depend on Services.
func Base(b Bridge) []flow.Flow { return b.base() }

// HostFlows returns the flows of a bridge without its NIC or patch port. It serves
// the host alone, even at the moment the missing port appears, and no pod: see base.
func (b Bridge) HostFlows() []flow.Flow {
	return append(b.ends(), b.toPods(flow.Match{}, flow.Drop)...)
}

// ends returns the flows for packets of the two ends that share a MAC, with any port
// numbers.
func (b Bridge) ends() []flow.Flow {
	return []flow.Flow{
		newFlow(classify, fromHost, flow.Match{InPort: flow.Local}, flow.Normal),
		newFlow(classify, fromRouter, flow.Match{EthSrc: b.MAC}, flow.Drop),
		newFlow(classify, toHost, flow.Match{EthDst: b.MAC}, host()),
	}
}

// toPods returns the flows for packets to pods' own addresses.
func (b Bridge) toPods(m flow.Match, actions string) []flow.Flow {
	var flows []flow.Flow
	for _, pods := range b.Pods {
		m.Protocol, m.EthDst, m.To = "ip", b.MAC, pods
		if pods.Addr().Is6() {
			m.Protocol = "ipv6"
		}
		flows = append(flows, newFlow(classify, routed, m, actions))
	}
	return flows
}

// host returns the actions for a packet to the host.
func host() string { return flow.Output(flow.Local) + "," + flow.Learn }

func newFlow(table, priority int, m flow.Match, actions string) flow.Flow {
	return flow.Flow{Cookie: Cookie, Table: table, Priority: priority, Match: m.String(), Actions: actions}
}

// base returns the flows of all bridges. Pods' connections leave through the
// gateway router and are recorded in conntrack; the host's connections never are.
// So packets of recorded connections go to the gateway router, all others to the
// host.
//
// NORMAL learns the port of each MAC, and must learn the shared MAC only at the
// host's port. So packets from the gateway router go straight to the NIC, and
// packets to the shared MAC straight to the host. This holds even during the
// moments in which ports have other numbers than in the flows.
//
// Packets to a pod from a router outside go to the gateway router from the first
// one on, so that the gateway router knows the connection when the pod answers.
// If the host routed one to the pod, the gateway router would take the answer for a
// connection of the pod's own, and replace the source of all further answers.
func (b Bridge) base() []flow.Flow {
	back := flow.Output(b.Overlay)
	both := flow.Output(flow.Local, b.Overlay) + "," + flow.Learn
	all := flow.Output(b.Overlay) + "," + flow.Normal
	flows := append(b.ends(),
		newFlow(classify, first, flow.Match{Protocol: "arp", InPort: b.Overlay}, flow.Output(b.Physical)),
		// Host and router may both have asked, so both get the answer.
		newFlow(classify, first, flow.Match{Protocol: "arp", InPort: b.Physical, EthDst: b.MAC}, both),
		// NORMAL never uses the patch port (vswitch.EnsurePatch).
		newFlow(classify, asked, flow.Match{Protocol: "arp", InPort: b.Physical}, all),
		newFlow(classify, mistaken, flow.Match{InPort: b.Overlay, EthDst: b.MAC}, host()),
		newFlow(classify, mistaken, flow.Match{InPort: b.Physical, EthSrc: b.MAC}, flow.Drop),
		newFlow(tracked, frontend, flow.Match{State: "+est+trk"}, back),
		newFlow(tracked, frontend, flow.Match{State: "+rel+trk"}, back),
		newFlow(tracked, toHost, flow.Match{EthDst: b.MAC}, host()),
		newFlow(tracked, 0, flow.Match{}, flow.Normal),
	)
	for _, t := range neighborDiscovery {
		flows = append(flows,
			newFlow(classify, first, flow.Match{Protocol: "icmp6", InPort: b.Overlay, ICMPType: t}, flow.Output(b.Physical)),
			newFlow(classify, first, flow.Match{Protocol: "icmp6", InPort: b.Physical, EthDst: b.MAC, ICMPType: t}, both),
			newFlow(classify, asked, flow.Match{Protocol: "icmp6", InPort: b.Physical, ICMPType: t}, all))
	}
	flows = append(flows, b.toPods(flow.Match{InPort: b.Physical}, back)...)
	for _, ip := range []string{"ip", "ipv6"} {
		flows = append(flows,
			newFlow(classify, frontend, flow.Match{Protocol: ip, InPort: b.Overlay}, flow.Commit(b.Zone, flow.Output(b.Physical))),
			newFlow(classify, later, flow.Match{Protocol: ip, InPort: b.Physical}, flow.Track(b.Zone, tracked)))
	}
	return flows
}

// Takes reports whether flows accept the connections to a frontend. Otherwise the
// host does: the gateway router has no address in the family; or it has the address
// of a backend in this host's own network, and would keep the packet.
func (b Bridge) Takes(f service.Frontend) bool {
	if len(b.Router) > 0 && !hasWay(b.Router, ipnet.Families()[f.Family]) {
		return false
	}
	return f.Programmed() && !slices.ContainsFunc(f.Reachable(), func(e service.Endpoint) bool { return slices.Contains(b.Addrs, e.Addr) })
}

// services returns the flows for frontends of Services.
func (b Bridge) services(frontends service.List) []flow.Flow {
	var flows []flow.Flow
	for f := range frontends.Outside() {
		if b.Takes(f) {
			flows = append(flows, b.frontend(f)...)
		}
	}
	return flows
}

func (b Bridge) frontend(f service.Frontend) []flow.Flow {
	m := flow.Match{Protocol: protocol(f.Protocol(), f.Family), InPort: b.Physical, ToPort: f.Number}
	in := flow.Output(b.Overlay)
	if f.Kind != service.NodePort {
		m.To = ipnet.Single(f.Addr)
		if !f.Guarded() {
			return []flow.Flow{newFlow(classify, frontend, m, in)}
		}
		flows := []flow.Flow{newFlow(classify, closed, m, flow.Drop)}
		for _, from := range f.SourceRanges {
			if f.OfFamily(from.Addr()) {
				m.From = from
				flows = append(flows, newFlow(classify, frontend, m, in))
			}
		}
		return flows
	}
	if len(b.Addrs) == 0 { // a bridge without addresses: any destination
		return []flow.Flow{newFlow(classify, frontend, m, in)}
	}
	var flows []flow.Flow
	for _, a := range b.NodePorts {
		if f.OfFamily(a) {
			m.To = ipnet.Single(a)
			flows = append(flows, newFlow(classify, frontend, m, in))
		}
	}
	return flows
}

// protocol returns ovs-ofctl's name of a protocol in a family.
func protocol(p corev1.Protocol, family int) string {
	lower := strings.ToLower(string(p))
	if family == 1 {
		lower += "6"
	}
	return lower
}

// Ours reports whether a flow of the bridge was made by us, or by the program of
// the Python era: it set no cookie, and sent NodePorts to the patch port.
func (b Bridge) Ours(f flow.Flow) bool {
	if f.Cookie == Cookie {
		return true
	}
	if f.Cookie != 0 || f.Table != classify || f.Priority != frontend || f.Actions != flow.Output(b.Overlay) {
		return false
	}
	port, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(f.Match, "tcp,"), "udp,"), "in_port="+b.Physical.String()+",tp_dst=")
	return found && port != "" && !strings.Contains(port, ",")
}

// IsBase reports whether a flow is one of Base of this bridge, also with
// other port numbers: any flow but those of Services.
func IsBase(f flow.Flow) bool { return f.Cookie == Cookie && !strings.Contains(f.Match, "tp_dst=") }

// hostPorts returns the flows for hostPorts at the gateway router's addresses.
func (b Bridge) hostPorts(frontends service.List, pods []hostport.Pod) []flow.Flow {
	var flows []flow.Flow
	for i, family := range ipnet.Families() {
		for _, h := range hostport.Ports(family, frontends, pods) {
			for _, a := range b.Router {
				if a.Is4() == family.Is4() && h.At(a) {
					m := flow.Match{Protocol: protocol(h.Protocol, i), InPort: b.Physical, ToPort: h.Port, To: ipnet.Single(a)}
					flows = append(flows, newFlow(classify, frontend, m, flow.Output(b.Overlay)))
				}
			}
		}
	}
	return flows
}
