package nodeport

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
)

// Stale returns a function that reports whether a UDP connection in the host's
// conntrack table is stale. One to a frontend is, unless its ClusterIP, an endpoint
// or a neighbour answers; one to a hostPort is, unless its pod answers; one to
// any other port of the host's addresses is, if a pod of this node answers.
func Stale(h Host, family netip.Addr, frontends service.List, pods []hostport.Pod) func(to, answers netip.AddrPort) bool {
	allowed := map[netip.AddrPort]map[netip.AddrPort]bool{}
	for f := range frontends.Outside() {
		if f.Protocol() != corev1.ProtocolUDP || !f.OfFamily(family) || !f.Programmed() {
			continue
		}
		good := map[netip.AddrPort]bool{}
		for _, e := range slices.Concat(f.Backends(), h.neighbours(f)) {
			good[e.AddrPort()] = true
		}
		if len(good) > 0 {
			good[f.Cluster()] = true
		}
		at := []netip.Addr{f.Addr}
		if f.Kind == service.NodePort {
			at = h.Addrs
		}
		for _, a := range at {
			allowed[netip.AddrPortFrom(a, f.Number)] = good
		}
	}
	for _, p := range hostport.Ports(family, frontends, pods) {
		for _, a := range h.Addrs {
			at := netip.AddrPortFrom(a, p.Port)
			if p.Protocol == corev1.ProtocolUDP && a.Is4() == family.Is4() && p.At(a) && allowed[at] == nil {
				allowed[at] = map[netip.AddrPort]bool{p.To: true}
			}
		}
	}
	return func(to, answers netip.AddrPort) bool {
		good, isFrontend := allowed[to]
		if isFrontend {
			return !good[answers]
		}
		here := func(p netip.Prefix) bool { return p.Contains(answers.Addr()) }
		return slices.Contains(h.Addrs, to.Addr()) && !slices.Contains(h.Addrs, answers.Addr()) && slices.ContainsFunc(h.Pods, here)
	}
}

// UDPAnswers returns the endpoints of each UDP frontend. A NodePort is at the
// unspecified address of its family.
func UDPAnswers(frontends service.List) map[netip.AddrPort]map[netip.AddrPort]bool {
	known := map[netip.AddrPort]map[netip.AddrPort]bool{}
	for f := range frontends.All() {
		if f.Protocol() != corev1.ProtocolUDP || !f.Programmed() {
			continue
		}
		at := f.Addr
		if f.Kind == service.NodePort {
			at = [...]netip.Addr{IPv4, IPv6}[f.Family]
		}
		to := netip.AddrPortFrom(at, f.Number)
		if known[to] == nil {
			known[to] = map[netip.AddrPort]bool{}
		}
		for _, e := range f.Backends() {
			known[to][e.AddrPort()] = true
		}
	}
	return known
}

// StaleInside returns a function that reports whether a UDP connection in Open
// vSwitch leads to a deleted endpoint: its destination is a frontend, ClusterIPs
// included, and none of its endpoints answers. A NodePort is at any address: it may be
// the external address of another frontend, too. It returns nil if there are no frontends
// for UDP. The connections are those with a translated destination.
func StaleInside(frontends service.List) func(to, answers netip.AddrPort) bool {
	known := UDPAnswers(frontends)
	if len(known) == 0 {
		return nil
	}
	return func(to, answers netip.AddrPort) bool {
		good, ok := known[to]
		if !ok {
			good, ok = known[netip.AddrPortFrom(anywhere(to.Addr()), to.Port())]
		}
		return ok && !good[answers]
	}
}

// anywhere returns the unspecified address of an address's family.
func anywhere(a netip.Addr) netip.Addr {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}
