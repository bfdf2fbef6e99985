// Package nodeport computes the rules of a host's packet filter for connections to Services and hostPorts from clients
// other than pods.
package nodeport

import (
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
)

// A Host holds the inputs of a host's rules other than Services and pods.
type Host struct {
	// Node is the host's name in Kubernetes, and Zone its zone, "" if there is none.
	Node, Zone string
	// Addrs are all addresses of the host. An endpoint with one of them is in the
	// host's own network.
	Addrs []netip.Addr
	// Nodes are the known addresses of all nodes.
	Nodes Nodes
	// Reported are status.addresses of the host's own Node.
	Reported []corev1.NodeAddress
	// Routed, unless nil, are the subnets of cluster IPs to which the host has
	// routes by Management.
	Routed []netip.Prefix
	// Management is the interface to the pods, "" if there is none, and Pods are
	// the subnets of this node's pods.
	Management string
	Pods       []netip.Prefix
	// NodePortAddresses, unless empty, restrict the addresses with NodePorts.
	NodePortAddresses []netip.Prefix
	// Shared is the bridge that the host shares with its gateway router, "" if
	// there is none, and PodPorts, such as "10000-29999", are the source ports there
	// of pods' connections, never of the host's.
	Shared, PodPorts string
	// Servers are databases and API servers. No Service takes the host's own
	// connections to them.
	Servers []netip.AddrPort
	// Gateway is whether this host has a gateway router with a NIC: answers of pods
	// here to clients outside leave by it, and not by the host.
	Gateway bool
}

// pods are the subnets of one family of this node's pods, none without a management port.
func (h Host) pods(family netip.Addr) (out []netip.Prefix) {
	for _, s := range h.Pods {
		if h.Management != "" && s.Addr().Is4() == family.Is4() {
			out = append(out, s)
		}
	}
	return out
}

// IPv4 and IPv6 select a family.
var (
	IPv4 = ipnet.Families()[0]
	IPv6 = ipnet.Families()[1]
)

// Rules are the work of a host on packets of Services and pods in one family. Chains and Table render them for
// iptables(8) and nft(8).
//
// A frontend is translated to the Service's ClusterIP, by way of the management
// port, and OVN chooses the endpoint. Where OVN would choose wrongly or could not
// reach the endpoint, the frontend is translated to an endpoint directly (see
// direct). hostPorts are translated to their pods, all of them on this node.
//
// NodePorts come after all addresses, and HostPorts last.
type Rules struct {
	Host      Host
	Family    netip.Addr
	HostPorts []hostport.Port

	frontends service.List
	tables    *Tables
}

// serviceRules are the rules of Services.
type serviceRules struct {
	// Translations change the destinations of new connections, in order of precedence.
	Translations []Translation
	// Refusals are of packets that still have a frontend's address after that.
	Refusals []Refusal
	// Strays are TCP frontends at the address of a shared NIC, whose segments may come to the host by mistake.
	Strays []service.Frontend
	// Spared are servers that Services claim as external IPs: connections of this host itself are exempt from all of it.
	Spared []netip.AddrPort
}

// A Translation leads new connections to a frontend to a target.
type Translation struct {
	service.Frontend
	To *Target
	// Own, unless nil, is for connections of this host itself.
	Own *Target
}

// A Refusal refuses new connections to a frontend: at once, or by silence.
type Refusal struct {
	service.Frontend
	Reject bool
}

// A Target is where connections to one port of a Service go. The first case that applies decides.
type Target struct {
	Kind targetKind
	Of   service.Frontend
	// Pods, unless nil, is for connections that came in by the management port.
	Pods *Target
	// Own, unless nil, is for connections of this host itself.
	Own *Target
	// Next, unless nil, is for all others.
	Next *Target
	// ByOVN: the destination is the ClusterIP, and OVN chooses the endpoint.
	ByOVN bool
	// To are the endpoints, all with the same probability.
	To []Destination
	// Hidden is whether the source becomes this host's address, except for endpoints on this host.
	Hidden bool

	text string // see label
}

// label names the Service and port. Many elements of a table share it.
func (t *Target) label() string {
	if t.text == "" {
		t.text = name(t.Of)
	}
	return t.text
}

// A Destination is an endpoint, or a NodePort of another node.
type Destination struct {
	netip.AddrPort
	Mark bool // for masquerade
}

// A targetKind is a part of the name of a target's chain.
type targetKind string

const (
	toExternal  targetKind = "EXT" // for clients outside
	toPods      targetKind = "POD" // for pods of other nodes: they count as clients outside
	toCluster   targetKind = "SVC" // to any endpoint
	toInternal  targetKind = "INT" // for connections of this host to the ClusterIP
	toNeighbour targetKind = "OWN" // for connections of this host to a NodePort, by other nodes
)

// NewRules returns the rules of one family.
func NewRules(h Host, family netip.Addr, frontends service.List, pods []hostport.Pod) Rules {
	return new(Tables).Rules(h, family, frontends, pods)
}

// newServiceRules computes the rules of some frontends. Those of one Service do not depend on other Services.
func newServiceRules(h Host, family netip.Addr, frontends service.List) serviceRules {
	b := ruleBuilder{Host: h, Family: family, targets: map[targetKey]*Target{}}
	for f := range frontends.Outside() {
		if b.is(f) && f.Programmed() {
			b.frontend(f)
		}
	}
	b.own(frontends)
	for _, f := range ServerClaims(h, frontends) {
		if b.is(f) {
			b.Spared = append(b.Spared, netip.AddrPortFrom(f.Addr, f.Number))
		}
	}
	return b.serviceRules
}

// ServerClaims lists the external IPs of Services that are the address of a
// database or the API server. Anybody with the right to create Services can claim
// such an address (CVE-2020-8554). Addresses of load balancers are not listed: their
// controllers set them.
func ServerClaims(h Host, frontends service.List) (claims []service.Frontend) {
	for f := range frontends.Outside() {
		if f.Kind == service.ExternalIP && f.Protocol() == corev1.ProtocolTCP && slices.Contains(h.Servers, netip.AddrPortFrom(f.Addr, f.Number)) {
			claims = append(claims, f)
		}
	}
	return claims
}

// A ruleBuilder collects rules.
type ruleBuilder struct {
	serviceRules
	Host    Host
	Family  netip.Addr
	targets map[targetKey]*Target
}

// A targetKey identifies a target: frontends of one port of a Service share targets.
type targetKey struct {
	kind  targetKind
	of    *service.Resolved
	index int
}

// is reports whether a frontend is of the builder's family.
func (b *ruleBuilder) is(f service.Frontend) bool { return f.OfFamily(b.Family) }

// target returns a target of a frontend's port, and reports whether it was there already.
func (b *ruleBuilder) target(kind targetKind, f service.Frontend) (*Target, bool) {
	key := targetKey{kind, f.Resolved, f.Index}
	t, there := b.targets[key]
	if !there {
		t = &Target{Kind: kind, Of: f}
		b.targets[key] = t
	}
	return t, there
}

// frontend adds a translation of one frontend, or a refusal.
func (b *ruleBuilder) frontend(f service.Frontend) {
	if b.Host.Shared != "" && f.Protocol() == corev1.ProtocolTCP && f.Kind == service.NodePort {
		b.Strays = append(b.Strays, f)
	}
	if len(f.Backends().Cluster()) == 0 {
		b.Refusals = append(b.Refusals, Refusal{f, true})
		return
	}
	t := Translation{Frontend: f, To: b.external(f)}
	if next := b.Host.neighbours(f); len(next) > 0 {
		t.Own = b.spread(toNeighbour, f, b.few(f.OverChosen, next), false)
	}
	b.Translations = append(b.Translations, t)
	if f.Guarded() && f.Kind != service.NodePort {
		b.Refusals = append(b.Refusals, Refusal{f, false})
	}
	if f.ExternalLocal && len(f.FromOutside(b.Host.Node)) == 0 {
		// Kubernetes wants such a node to look down to a load balancer.
		b.Refusals = append(b.Refusals, Refusal{f, false})
	}
}

// external returns the target of connections from outside to one port of a Service.
func (b *ruleBuilder) external(f service.Frontend) *Target {
	t, done := b.target(toExternal, f)
	if done {
		return t
	}
	cluster := b.cluster(f)
	if !f.ExternalLocal {
		t.Next = cluster
		return t
	}
	local := b.few(f.OverChosen, f.FromOutside(b.Host.Node))
	// Pods of other nodes count as clients outside. Without the host's address as
	// source, the endpoint would answer them directly, and not by the host, which
	// changed the destination.
	if b.Host.Management != "" && len(local) > 0 {
		t.Pods = b.spread(toPods, f, local, true)
	}
	// The external traffic policy does not apply to connections from the host itself.
	t.Own = cluster
	// The gateway's router does not know the host's DNAT, and could not reverse it.
	b.fill(t, local, b.Host.Gateway)
	return t
}

// cluster returns the target for any endpoint of the Service.
func (b *ruleBuilder) cluster(f service.Frontend) *Target {
	t, done := b.target(toCluster, f)
	switch {
	case done:
	case b.direct(f):
		counted := f.Affinity > 0 || f.InternalLocal // see Resolved.Chosen
		b.fill(t, b.few(f.OverChosen || f.OverSpare && !counted, f.Backends().Cluster()), true)
	default:
		t.ByOVN = true
	}
	return t
}

// direct reports whether the host has to choose the endpoint itself, because OVN
//   - would leave this host's address as source on packets to an endpoint in the
//     host's own network, and the kernel takes them for forged;
//   - could not tell clients apart for session affinity behind one masquerading
//     address: without room for its endpoints, all clients of this host share one;
//   - would use only endpoints of this node for the internal traffic policy Local;
//   - is out of reach at cluster IPs of a range added later (no route).
func (b *ruleBuilder) direct(f service.Frontend) bool {
	return sticky(f) || f.InternalLocal || !b.routed(f.Cluster().Addr()) || slices.ContainsFunc(f.Backends(), b.isOwn)
}

// few returns the endpoints for a target: all, or one if there is no room for them. One of this host comes first; else hosts
// use different ones.
func (b *ruleBuilder) few(over bool, endpoints service.Endpoints) service.Endpoints {
	if !over || len(endpoints) < 2 {
		return endpoints
	}
	at := slices.IndexFunc(endpoints, b.isOwn)
	if at < 0 {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(b.Host.Node))
		at = int(sum.Sum32() % uint32(len(endpoints)))
	}
	return endpoints[at : at+1]
}

// sticky reports whether clients keep their endpoint at this host. Those of a Service without room for its endpoints have no
// other one here.
func sticky(f service.Frontend) bool { return f.Affinity > 0 && !f.OverChosen }

// isOwn reports whether an endpoint is in this host's own network.
func (b *ruleBuilder) isOwn(e service.Endpoint) bool { return slices.Contains(b.Host.Addrs, e.Addr) }

// routed reports whether packets from the host to a cluster IP reach OVN.
func (b *ruleBuilder) routed(a netip.Addr) bool {
	return b.Host.Routed == nil || slices.ContainsFunc(b.Host.Routed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// own adds translations for connections from the host itself to a ClusterIP, if an endpoint
// is in the host's own network, or there is no route to the address.
func (b *ruleBuilder) own(frontends service.List) {
	for f := range frontends.All() {
		if f.Kind != service.ClusterIP || !b.is(f) {
			continue
		}
		if b.translatesOwn(f) {
			b.Translations = append(b.Translations, Translation{Frontend: f, To: b.spread(toInternal, f, b.few(f.OverChosen || f.OverSpare, b.internal(f)), true)})
		}
	}
}

// translatesOwn reports whether own translates a ClusterIP.
func (b *ruleBuilder) translatesOwn(f service.Frontend) bool {
	chosen := b.internal(f)
	return len(chosen) > 0 && (slices.ContainsFunc(chosen, b.isOwn) || !b.routed(f.Addr))
}

// internal returns the endpoints for connections from this host to the ClusterIP: the same as for pods of the node.
func (b *ruleBuilder) internal(f service.Frontend) service.Endpoints {
	if f.InternalLocal {
		return f.Local(b.Host.Node)
	}
	return f.Backends().ClusterFrom(service.Node{Name: b.Host.Node, Zone: b.Host.Zone})
}

// spread returns a target with endpoints.
func (b *ruleBuilder) spread(kind targetKind, f service.Frontend, endpoints service.Endpoints, hidden bool) *Target {
	t, done := b.target(kind, f)
	if !done {
		b.fill(t, endpoints, hidden)
	}
	return t
}

// fill adds endpoints to a target.
func (b *ruleBuilder) fill(t *Target, endpoints service.Endpoints, hidden bool) {
	t.Hidden = hidden
	for _, e := range endpoints {
		t.To = append(t.To, Destination{e.AddrPort(), hidden && !b.isOwn(e)})
	}
}
