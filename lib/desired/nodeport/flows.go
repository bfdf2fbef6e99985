// Package nodeport says how a node takes in connections to Services that do not
// come from pods: by flows of the bridge that the host shares with its gateway
// router, and by rules of the host's iptables(8).
package nodeport

import (
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
	wayIn    = 100
	closed   = 95 // a way in that is not open to all
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
func Flows(b Bridge, services []service.Resolved, pods []hostport.Pod) []flow.Flow {
	flows, taken := b.base(), map[flow.Key]bool{}
	for _, f := range append(b.services(services), b.hostPorts(services, pods)...) {
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
		newFlow(tracked, wayIn, flow.Match{State: "+est+trk"}, back),
		newFlow(tracked, wayIn, flow.Match{State: "+rel+trk"}, back),
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
			newFlow(classify, wayIn, flow.Match{Protocol: ip, InPort: b.Overlay}, flow.Commit(b.Zone, flow.Output(b.Physical))),
			newFlow(classify, later, flow.Match{Protocol: ip, InPort: b.Physical}, flow.Track(b.Zone, tracked)))
	}
	return flows
}

// Takes reports whether flows let in what is for a way in. Otherwise the host
// does it: a backend in this host's own network has the address of the gateway
// router, which would keep the packet for itself.
func (b Bridge) Takes(w Way) bool {
	return (w.Ingress == nil || !w.Ingress.Proxy) && !w.ofHost(b.Addrs) &&
		!slices.ContainsFunc(w.Endpoints, func(e service.Endpoint) bool { return slices.Contains(b.Addrs, e.Addr) })
}

// services lets in what is for Services.
func (b Bridge) services(services []service.Resolved) []flow.Flow {
	var flows []flow.Flow
	for _, w := range Ways(services) {
		if b.Takes(w) {
			flows = append(flows, b.way(w)...)
		}
	}
	return flows
}

func (b Bridge) way(w Way) []flow.Flow {
	m := flow.Match{Protocol: protocol(w.Protocol, w.Family), InPort: b.Physical, ToPort: w.To}
	in := flow.Output(b.Overlay)
	if w.Addr.IsValid() {
		m.To = single(w.Addr)
		if w.Ingress == nil || len(w.SourceRanges) == 0 {
			return []flow.Flow{newFlow(classify, wayIn, m, in)}
		}
		flows := []flow.Flow{newFlow(classify, closed, m, flow.Drop)}
		for _, from := range w.SourceRanges {
			if from.Addr().Is4() == w.Family.Is4() {
				m.From = from
				flows = append(flows, newFlow(classify, wayIn, m, in))
			}
		}
		return flows
	}
	if len(b.Addrs) == 0 { // a bridge without addresses: whatever is sent there
		return []flow.Flow{newFlow(classify, wayIn, m, in)}
	}
	var flows []flow.Flow
	for _, a := range b.Addrs {
		if a.Is4() == w.Family.Is4() {
			m.To = single(a)
			flows = append(flows, newFlow(classify, wayIn, m, in))
		}
	}
	return flows
}

// protocol is what ovs-ofctl calls a protocol in a family.
func protocol(p corev1.Protocol, family netip.Addr) string {
	lower := strings.ToLower(string(p))
	if family.Is6() {
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
	if f.Cookie != 0 || f.Table != classify || f.Priority != wayIn || f.Actions != flow.Output(b.Overlay) {
		return false
	}
	port, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(f.Match, "tcp,"), "udp,"), "in_port="+b.Physical.String()+",tp_dst=")
	return found && port != "" && !strings.Contains(port, ",")
}

// IsBase reports whether a flow is one of BaseFlows of this bridge, or of it with
// other ports: any but those of Services.
func IsBase(f flow.Flow) bool { return f.Cookie == Cookie && !strings.Contains(f.Match, "tp_dst=") }

// A Way is a way in to one port of a Service, in one family.
type Way struct {
	*service.Resolved
	Protocol corev1.Protocol
	// Addr and To are what a client connects to. No Addr means every address of
	// every node: To is a NodePort.
	Addr netip.Addr
	To   uint16
	// Ingress is the load balancer's address that Addr is, nil for others.
	Ingress *service.Ingress
	// Family is that of Cluster.
	Family netip.Addr
	// Cluster is the ClusterIP, and the port that goes with it.
	Cluster netip.AddrPort
	// Endpoints are of this port and family.
	Endpoints service.Endpoints
	Port      service.Port
}

// ofHost reports whether the way in is a port that a host with such addresses
// needs itself, or has for another Service.
func (w Way) ofHost(addrs []netip.Addr) bool {
	_, others := w.OfNodes(w.Protocol, w.To)
	return w.Addr.IsValid() && (others || service.OfHost(w.Protocol, w.To)) && slices.Contains(addrs, w.Addr)
}

// keeps reports whether the way in is a port that this host, or another node,
// needs itself.
func (h Host) keeps(w Way) bool {
	if w.ofHost(h.Addrs) {
		return true
	}
	for _, addrs := range h.Nodes {
		if w.ofHost(addrs) {
			return true
		}
	}
	return false
}

// Ways lists the ways in from outside of all Services, but for those that another
// Service has a better right to.
func Ways(services []service.Resolved) []Way {
	var out []Way
	for i := range services {
		for _, w := range ways(&services[i]) {
			if w.Has(service.Claim{Addr: w.Addr, Protocol: w.Protocol, Port: w.To}) {
				out = append(out, w)
			}
		}
	}
	return out
}

func ways(s *service.Resolved) []Way {
	var out []Way
	for _, ip := range s.ClusterIPs {
		for i, p := range s.Ports {
			w := Way{
				Resolved: s, Protocol: p.Protocol, To: p.Port, Family: ip, Port: p,
				Cluster: netip.AddrPortFrom(ip, p.Port), Endpoints: s.Endpoints[i].Of(ip),
			}
			for _, a := range s.ExternalIPs {
				if a.Is4() == ip.Is4() {
					w.Addr = a
					out = append(out, w)
				}
			}
			for _, in := range s.Ingress {
				if in.Addr.Is4() == ip.Is4() {
					w.Addr, w.Ingress = in.Addr, &in
					out = append(out, w)
				}
			}
			if p.NodePort != 0 {
				w.Addr, w.Ingress, w.To = netip.Addr{}, nil, p.NodePort
				out = append(out, w)
			}
		}
	}
	return out
}
