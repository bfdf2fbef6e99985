package nodeport

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
)

// A Tracked is what the host's conntrack table may hold for connections of UDP, of one family. See Equal.
type Tracked struct {
	// answers are the allowed addresses of answers, by those of frontends and hostPorts.
	answers map[netip.AddrPort]map[netip.AddrPort]bool
	// Translated: rules of this host lead packets to some of them.
	Translated bool
	addrs      []netip.Addr
	pods       []netip.Prefix
}

// NewTracked returns the table for Services and hostPorts. To a frontend its ClusterIP, an endpoint or a neighbour answers. Own
// connections to a ClusterIP go to OVN, which the host sees as an answer of the ClusterIP; or to an endpoint, if the host's rules
// translate them.
func NewTracked(h Host, family netip.Addr, frontends service.List, pods []hostport.Pod) Tracked {
	t := Tracked{answers: map[netip.AddrPort]map[netip.AddrPort]bool{}, addrs: h.Addrs, pods: h.Pods}
	for f := range frontends.All() {
		if f.Protocol() != corev1.ProtocolUDP || !f.OfFamily(family) || !f.Programmed() {
			continue
		}
		if f.Kind == service.ClusterIP {
			t.addOwn(h, family, f)
		} else {
			t.addOutside(h, f)
		}
	}
	for _, p := range hostport.Ports(family, frontends, pods) {
		for _, a := range h.Addrs {
			at := netip.AddrPortFrom(a, p.Port)
			if p.Protocol == corev1.ProtocolUDP && a.Is4() == family.Is4() && p.At(a) && t.answers[at] == nil {
				t.answers[at] = map[netip.AddrPort]bool{p.To: true}
			}
		}
	}
	return t
}

func (t *Tracked) addOutside(h Host, f service.Frontend) {
	t.Translated = true
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
		t.answers[netip.AddrPortFrom(a, f.Number)] = good
	}
}

// addOwn adds the host's own connections to a ClusterIP. The endpoints of other hosts count only if the rules choose them, so that
// nothing changes here with most Services.
func (t *Tracked) addOwn(h Host, family netip.Addr, f service.Frontend) {
	b := ruleBuilder{Host: h, Family: family}
	translated := b.translatesOwn(f)
	good := map[netip.AddrPort]bool{}
	for _, e := range f.Backends() { // also draining ones
		if translated || b.isOwn(e) {
			good[e.AddrPort()] = true
		}
	}
	if !translated {
		good[f.Cluster()] = true
	}
	t.Translated = t.Translated || translated
	t.answers[f.Cluster()] = good
}

// Equal reports whether the same connections are stale.
func (t Tracked) Equal(o Tracked) bool {
	return maps.EqualFunc(t.answers, o.answers, maps.Equal) && slices.Equal(t.addrs, o.addrs) && slices.Equal(t.pods, o.pods)
}

// Stale reports whether a connection is stale. One to a frontend or hostPort is, unless an address that may answer does; one to any
// other port of the host's addresses is, if a pod of this node answers.
func (t Tracked) Stale(to, answers netip.AddrPort) bool {
	if good, known := t.answers[to]; known {
		return !good[answers]
	}
	here := func(p netip.Prefix) bool { return p.Contains(answers.Addr()) }
	return slices.Contains(t.addrs, to.Addr()) && !slices.Contains(t.addrs, answers.Addr()) && slices.ContainsFunc(t.pods, here)
}
