package nodeport

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/tracked"
)

// NewTracked returns the table for Services and hostPorts. To a frontend its ClusterIP, an endpoint or a neighbour answers. Own
// connections to a ClusterIP go to OVN, which the host sees as an answer of the ClusterIP; or to an endpoint, if the host's rules
// translate them.
func NewTracked(h Host, family netip.Addr, frontends service.List, pods []hostport.Pod) tracked.Table {
	external, _ := h.mapped(family) // pods reach NodePorts there, too
	t := tracked.Table{Answers: map[netip.AddrPort]map[netip.AddrPort]bool{}, Addrs: slices.Concat(h.Addrs, external), Pods: h.Pods}
	b := ruleBuilder{Host: h, Family: family}
	for f := range frontends.All() {
		if f.Protocol() != corev1.ProtocolUDP || !f.OfFamily(family) || !f.Programmed() {
			continue
		}
		if f.Kind == service.ClusterIP {
			translated := b.translatesOwn(f)
			t.Translated = t.Translated || translated
			t.Answers[f.Cluster()] = b.ownAnswers(f, translated)
			continue
		}
		t.Translated = true
		good, at := b.outsideAnswers(f), []netip.Addr{f.Addr}
		if f.Kind == service.NodePort {
			at = t.Addrs
		}
		for _, a := range at {
			t.Answers[netip.AddrPortFrom(a, f.Number)] = good
		}
	}
	for _, p := range hostport.Ports(family, frontends, pods) {
		for _, a := range h.Addrs {
			at := netip.AddrPortFrom(a, p.Port)
			if p.Protocol == corev1.ProtocolUDP && a.Is4() == family.Is4() && p.At(a) && t.Answers[at] == nil {
				t.Answers[at] = map[netip.AddrPort]bool{p.To: true}
			}
		}
	}
	return t
}

// outsideAnswers are those to a frontend for clients outside. OVN balances most Services. The host's rules lead to the endpoints
// of others, for the external traffic policy Local to those of this host, and to neighbours.
func (b *ruleBuilder) outsideAnswers(f service.Frontend) map[netip.AddrPort]bool {
	good, direct := map[netip.AddrPort]bool{}, b.direct(f)
	for _, e := range f.Reachable() { // also draining ones
		good[e.AddrPort()] = direct || f.ExternalLocal && e.Node == b.Host.Node
	}
	for _, e := range b.Host.neighbours(f) {
		good[e.AddrPort()] = true
	}
	if len(good) > 0 {
		good[f.Cluster()] = true
	}
	return good
}

// ownAnswers are those to the host's own connections to a ClusterIP. The endpoints of other hosts count only if the rules choose
// them, so that nothing changes here with most Services.
func (b *ruleBuilder) ownAnswers(f service.Frontend, translated bool) map[netip.AddrPort]bool {
	good := map[netip.AddrPort]bool{}
	for _, e := range f.Reachable() { // also draining ones
		if translated || b.isOwn(e) {
			good[e.AddrPort()] = true
		}
	}
	if !translated {
		good[f.Cluster()] = true
	}
	return good
}
