package nodeport

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
)

// maxMapped is the maximum number of ExternalIPs translated, as facts.Reported counts them.
const maxMapped = 64

// mapped returns the ExternalIPs of this host's Node without an interface here, in one family, and its InternalIP.
// Clouds translate such addresses (1:1 NAT) on the way from outside. Packets of pods come from OVN without that. There are
// none without a management port, or without an InternalIP.
func (h Host) mapped(family netip.Addr) (external []netip.Addr, internal netip.Addr) {
	for _, reported := range h.Reported {
		a, err := netip.ParseAddr(reported.Address)
		if a = a.Unmap(); err != nil || ipnet.Unusable(a) != "" || a.Is4() != family.Is4() {
			continue
		}
		switch here := slices.Contains(h.Addrs, a); {
		case reported.Type == corev1.NodeInternalIP && here && !internal.IsValid():
			internal = a
		case reported.Type == corev1.NodeExternalIP && !here && len(external) < maxMapped:
			external = append(external, a)
		}
	}
	if h.Management == "" || !internal.IsValid() {
		return nil, internal
	}
	slices.SortFunc(external, netip.Addr.Compare)
	return slices.Compact(external), internal
}

// mapped translates packets of pods to the host's ExternalIPs: NodePorts as at its InternalIP, all others to that.
func (b *builder) mapped() {
	external, internal := b.host.mapped(b.family)
	for _, a := range external {
		match := to(ipnet.Single(a)) + "-i " + b.host.Management
		if b.host.serves(internal) {
			b.nat(ChainPrefix+"PREROUTING", "%s -j %s", match, chainNodePorts)
		}
		b.nat(ChainPrefix+"PREROUTING", "%s -j DNAT --to-destination %s", match, internal)
	}
}

// tableMapped is builder.mapped for nftables.
func tableMapped(b *tableBuilder) {
	external, internal := b.Host.mapped(b.Family)
	for _, a := range external {
		match, comment := fmt.Sprintf("%s daddr %s iifname %q", b.ip, a, b.Host.Management), fmt.Sprint("ExternalIP ", a)
		if b.Host.serves(internal) {
			b.about(comment, "svc-prerouting", "%s %s vmap @%s", match, toPort, mapNodePorts)
		}
		b.about(comment, "svc-prerouting", "%s dnat to %s", match, internal)
	}
}
