package service

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
)

// UDPAnswers returns the endpoints of each UDP frontend. A NodePort is at the
// unspecified address of its family.
func UDPAnswers(frontends List) map[netip.AddrPort]map[netip.AddrPort]bool {
	known := map[netip.AddrPort]map[netip.AddrPort]bool{}
	for f := range frontends.All() {
		if f.Protocol() != corev1.ProtocolUDP || !f.Programmed() {
			continue
		}
		at := f.Addr
		if f.Kind == NodePort {
			at = ipnet.Families()[f.Family]
		}
		to := netip.AddrPortFrom(at, f.Number)
		if known[to] == nil {
			known[to] = map[netip.AddrPort]bool{}
		}
		for _, e := range f.Reachable() {
			known[to][e.AddrPort()] = true
		}
	}
	return known
}

// StaleUDP returns a function that reports whether a UDP connection in Open
// vSwitch leads to a deleted endpoint: its destination is a frontend, ClusterIPs
// included, and none of its endpoints answers. A NodePort is at any address: it may be
// the external address of another frontend, too. It returns nil if there are no frontends
// for UDP. The connections are those with a translated destination.
func StaleUDP(frontends List) func(to, answers netip.AddrPort) bool {
	known := UDPAnswers(frontends)
	if len(known) == 0 {
		return nil
	}
	return func(to, answers netip.AddrPort) bool {
		good, ok := known[to]
		if !ok {
			good, ok = known[netip.AddrPortFrom(ipnet.Families()[ipnet.Family(to.Addr())], to.Port())]
		}
		return ok && !good[answers]
	}
}
