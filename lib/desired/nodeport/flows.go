// Package nodeport says how a node takes in connections to Services that do not
// come from pods: by flows of the bridge that the host shares with its gateway
// router, and by rules of the host's iptables(8).
package nodeport

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/flow"
)

// Cookie marks our flows: "k8sgw" in ASCII.
const Cookie = 0x6b38736777

// A Bridge is one that a host and its gateway router share, with one MAC and
// one set of addresses.
type Bridge struct {
	Physical, Overlay flow.Port // the NIC, and the patch port to br-int
	MAC               string    // of the bridge
	Zone              int       // of conntrack, for the connections of pods
	// Addrs are the node's addresses on the bridge at which NodePorts are served,
	// and Router are those that the gateway router has, too.
	Addrs, Router []netip.Addr
	// Pods are the cluster's subnets, as far as they are known.
	Pods []netip.Prefix
}

// Tables and priorities.
const (
	classify = 0 // where packets start
	tracked  = 1 // where those of the NIC go on that may belong to a pod's connection

	mistaken = 120 // the NIC and the router have each other's numbers
	first    = 110 // ARP and neighbour discovery
	asked    = 105 // the same, for all
	frontend = 100
	closed   = 95 // a frontend that is not open to all
	routed   = 60 // for pods' own addresses
	later    = 50 // all other packets from the NIC
	// Whatever the ports' numbers are by now:
	fromHost   = 12 // what the host sends is sent on
	fromRouter = 11 // what else has its MAC must not be learned
	toHost     = 10 // what is for its MAC goes to the host
)

// neighborDiscovery are the ICMPv6 types of RFC 4861 that ask and answer:
// solicitations and advertisements of routers and neighbours. Conntrack does not
// follow them.
var neighborDiscovery = [...]uint8{133, 134, 135, 136}

// Flows returns the flows of a bridge. The default flow, NORMAL for all, is
// relied on and not among them.
func Flows(b Bridge, frontends []service.Frontend, pods []hostport.Pod) []flow.Flow {
	flows, taken := b.base(), map[flow.Key]bool{}
	for _, f := range append(b.services(frontends), b.hostPorts(frontends, pods)...) {
		if !taken[f.Key()] {
			flows = append(flows, f)
		}
		taken[f.Key()] = true
	}
	return flows
}

// BaseFlows returns the flows that do not depend on Services.
func BaseFlows(b Bridge) []flow.Flow { return b.base() }

// HostFlows returns the flows of a bridge without its NIC or patch port: it is the
// host's alone, even in the moment in which the port appears.
func HostFlows(mac string) []flow.Flow {
	return []flow.Flow{
		newFlow(classify, fromHost, flow.Match{InPort: flow.Local}, flow.Normal),
		newFlow(classify, fromRouter, flow.Match{EthSrc: mac}, flow.Drop),
		newFlow(classify, toHost, flow.Match{EthDst: mac}, host()),
	}
}

// host brings a packet to the host.
func host() string { return flow.Output(flow.Local) + "," + flow.Learn }

func newFlow(table, priority int, m flow.Match, actions string) flow.Flow {
	return flow.Flow{Cookie: Cookie, Table: table, Priority: priority, Match: m.String(), Actions: actions}
}

// base tells the pods' connections from the host's. The pods' leave through the
// gateway router and are remembered; the host's never are. What comes in and is
// remembered goes back to the gateway router, everything else to the host.
//
// NORMAL learns which MAC is behind which port, and the shared MAC must only ever
// be learned behind the host's: so what the gateway router sends goes straight
// to the NIC, and what is for the shared MAC straight to the host. That holds
// even while ports have other numbers than the flows know, which takes moments.
//
// What a router outside sends here for a pod is the gateway router's from its
// first packet on, so that the answer is one there.
func (b Bridge) base() []flow.Flow {
	back := flow.Output(b.Overlay)
	both := flow.Output(flow.Local, b.Overlay) + "," + flow.Learn
	all := flow.Output(b.Overlay) + "," + flow.Normal
	flows := append(HostFlows(b.MAC),
		newFlow(classify, first, flow.Match{Protocol: "arp", InPort: b.Overlay}, flow.Output(b.Physical)),
		// Both asked, so both get the answer.
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
	for _, pods := range b.Pods {
		ip := "ip"
		if pods.Addr().Is6() {
			ip = "ipv6"
		}
		flows = append(flows, newFlow(classify, routed, flow.Match{Protocol: ip, InPort: b.Physical, EthDst: b.MAC, To: pods}, back))
	}
	for _, ip := range []string{"ip", "ipv6"} {
		flows = append(flows,
			newFlow(classify, frontend, flow.Match{Protocol: ip, InPort: b.Overlay}, flow.Commit(b.Zone, flow.Output(b.Physical))),
			newFlow(classify, later, flow.Match{Protocol: ip, InPort: b.Physical}, flow.Track(b.Zone, tracked)))
	}
	return flows
}

// Takes reports whether flows let in what is for a frontend. Otherwise the host
// does it: a backend in this host's own network has the address of the gateway
// router, which would keep the packet for itself.
func (b Bridge) Takes(f service.Frontend) bool {
	return f.Programmed() && !slices.ContainsFunc(f.Backends(), func(e service.Endpoint) bool { return slices.Contains(b.Addrs, e.Addr) })
}

// services lets in what is for Services.
func (b Bridge) services(frontends []service.Frontend) []flow.Flow {
	var flows []flow.Flow
	for f := range Outside(frontends) {
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
		m.To = single(f.Addr)
		if !f.Guarded() {
			return []flow.Flow{newFlow(classify, frontend, m, in)}
		}
		flows := []flow.Flow{newFlow(classify, closed, m, flow.Drop)}
		for _, from := range f.SourceRanges {
			if isFamily(from.Addr(), f.Family) {
				m.From = from
				flows = append(flows, newFlow(classify, frontend, m, in))
			}
		}
		return flows
	}
	if len(b.Addrs) == 0 { // a bridge without addresses: whatever is sent there
		return []flow.Flow{newFlow(classify, frontend, m, in)}
	}
	var flows []flow.Flow
	for _, a := range b.Addrs {
		if isFamily(a, f.Family) {
			m.To = single(a)
			flows = append(flows, newFlow(classify, frontend, m, in))
		}
	}
	return flows
}

// protocol is what ovs-ofctl calls a protocol in a family.
func protocol(p corev1.Protocol, family int) string {
	lower := strings.ToLower(string(p))
	if family == 1 {
		lower += "6"
	}
	return lower
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Ours reports whether a flow of the bridge was made by us, or by the program of
// the Python era, which had no cookie: its NodePorts went to the patch port.
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

// IsBase reports whether a flow is one of BaseFlows of this bridge, or of it with
// other ports: any but those of Services.
func IsBase(f flow.Flow) bool { return f.Cookie == Cookie && !strings.Contains(f.Match, "tp_dst=") }

// Frontends lists the frontends of all Services.
func Frontends(services []service.Resolved, n service.Network) []service.Frontend {
	var out []service.Frontend
	for i := range services {
		out = append(out, services[i].Frontends(n)...)
	}
	return out
}

// Outside returns those of some frontends at which clients outside connect: all but the cluster IPs.
func Outside(all []service.Frontend) iter.Seq[service.Frontend] {
	return func(yield func(service.Frontend) bool) {
		for _, f := range all {
			if f.Kind != service.ClusterIP && !yield(f) {
				return
			}
		}
	}
}

// isFamily reports whether an address is one of a family, of which 0 is IPv4.
func isFamily(a netip.Addr, family int) bool { return a.Is4() == (family == 0) }
