package nodeport

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/service"
)

// external makes the chain for connections from outside to one port of a
// Service, if it is not there yet, and returns its name.
func (b *builder) external(f service.Frontend) string {
	name := chainName("EXT", f, "")
	if _, done := b.chain("nat", name); done {
		return name
	}
	cluster := b.cluster(f)
	if !f.ExternalLocal {
		b.nat(name, "-j %s", cluster)
		return name
	}
	local := f.Backends().Local(b.host.Node)
	// Pods of other nodes count as clients outside. Without the host's address as
	// source, the endpoint would answer them directly, and not by the host, which
	// changed the destination.
	if m := b.host.Management; m != "" && len(local) > 0 {
		pods := chainName("POD", f, "")
		b.balance(pods, f, local, hideSource)
		b.nat(name, "-i %s -j %s", m, pods)
	}
	// The external traffic policy does not apply to connections from the host itself.
	b.nat(name, "-m addrtype --src-type LOCAL -j %s", cluster)
	source := keepSource
	if b.host.Gateway { // the gateway's router does not know the host's DNAT, and could not reverse it
		source = hideSource
	}
	b.balance(name, f, local, source)
	return name
}

// cluster makes the chain for any endpoint of the Service, and returns its name.
func (b *builder) cluster(f service.Frontend) string {
	name := chainName("SVC", f, "")
	if _, done := b.chain("nat", name); done {
		return name
	}
	if b.direct(f) {
		b.balance(name, f, f.Backends().Cluster(), hideSource)
		return name
	}
	b.nat(name, "-j MARK --set-xmark %s", mark)
	b.nat(name, "-p %s -j DNAT --to-destination %s", strings.ToLower(string(f.Protocol())), f.Cluster())
	return name
}

// direct reports whether the host has to choose the endpoint itself, because OVN
//   - would leave this host's address as source on packets to an endpoint in the
//     host's own network, and the kernel takes them for forged;
//   - could not tell clients apart for session affinity behind one masquerading
//     address;
//   - would use only endpoints of this node for the internal traffic policy Local;
//   - is out of reach at cluster IPs of a range added later (no route).
func (b *builder) direct(f service.Frontend) bool {
	return f.Affinity > 0 || f.InternalLocal || !b.routed(f.Cluster().Addr()) || slices.ContainsFunc(f.Backends(), b.isOwn)
}

// isOwn reports whether an endpoint is in this host's own network.
func (b *builder) isOwn(e service.Endpoint) bool { return slices.Contains(b.host.Addrs, e.Addr) }

// routed reports whether packets from the host to a cluster IP reach OVN.
func (b *builder) routed(a netip.Addr) bool {
	return len(b.host.Routed) == 0 || slices.ContainsFunc(b.host.Routed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// own adds rules for connections from the host itself to a ClusterIP, if an endpoint
// is in the host's own network, or there is no route to the address.
func (b *builder) own(frontends []service.Frontend) {
	for _, f := range frontends {
		if f.Kind != service.ClusterIP || !b.is(f) {
			continue
		}
		if chosen := b.internal(f); len(chosen) > 0 && (slices.ContainsFunc(chosen, b.isOwn) || !b.routed(f.Addr)) {
			name := chainName("INT", f, "")
			b.balance(name, f, chosen, hideSource)
			b.nat(FrontendsChain, "%s%s %s -j %s", to(single(f.Addr)), proto(f.Protocol(), f.Number), comment(f.Key, f.Port()), name)
		}
	}
}

// internal returns the endpoints for connections from this host to the ClusterIP.
func (b *builder) internal(f service.Frontend) service.Endpoints {
	if f.InternalLocal {
		return f.Backends().Local(b.host.Node)
	}
	return f.Backends().Cluster()
}

// How balance treats the client's address. hideSource replaces it by this host's, so
// that the answer comes back here, except for endpoints on this host.
const (
	keepSource = iota
	hideSource
)

// balance sends connections to each endpoint with the same probability, or with
// session affinity to the endpoint of the client's last connection.
func (b *builder) balance(chain string, f service.Frontend, endpoints service.Endpoints, source int) {
	l := strings.ToLower(string(f.Protocol()))
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		kind := [...]string{keepSource: "KEP", hideSource: "SEP"}[source]
		names[i] = chainName(kind, f, e.AddrPort().String())
		if _, there := b.chain("nat", names[i]); !there {
			b.endpoint(names[i], f, e, source)
		}
		if f.Affinity > 0 {
			b.nat(chain, "-p %s -m recent --rcheck --seconds %d --reap --name %s --mask %s --rsource -j %s", l, f.Affinity, names[i], b.mask(), names[i])
		}
	}
	for i, name := range names {
		b.nat(chain, "%s-j %s", chance(len(names)-i), name)
	}
}

// endpoint makes the chain of one endpoint.
func (b *builder) endpoint(name string, f service.Frontend, e service.Endpoint, source int) {
	if source == hideSource && !b.isOwn(e) {
		b.nat(name, "-j MARK --set-xmark %s", mark)
	}
	affinity := ""
	if f.Affinity > 0 {
		affinity = fmt.Sprintf("-m recent --set --name %s --mask %s --rsource ", name, b.mask())
	}
	b.nat(name, "-p %s %s-j DNAT --to-destination %s", strings.ToLower(string(f.Protocol())), affinity, e.AddrPort())
}

func (b *builder) mask() string {
	if b.family.Is4() {
		return "255.255.255.255"
	}
	return "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
}

// chance matches one of n packets. iptables counts in parts of 2^31.
func chance(n int) string {
	if n == 1 {
		return ""
	}
	parts := ((1 << 31) + n/2) / n
	return fmt.Sprintf("-m statistic --mode random --probability %.11f ", float64(parts)/(1<<31))
}
