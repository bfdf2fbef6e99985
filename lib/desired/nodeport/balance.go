package nodeport

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
)

// services adds the rules of Services: jumps to the chains of their ports, and refusals.
func (b *builder) services(s serviceRules) {
	for _, t := range s.Translations {
		b.translation(t)
	}
	for _, f := range s.Strays {
		b.filter(StrayChain, "%s %s -j DROP", proto(f.Protocol(), f.Number), comment(f.Key, f.Port()))
	}
	for _, f := range s.Refusals {
		target := "DROP"
		if f.Reject {
			target = b.reject(f.Protocol())
		}
		b.refuse(f.Frontend, target)
	}
}

// translation adds the rules of one frontend; source ranges restrict its clients.
func (b *builder) translation(t Translation) {
	chain, match, who := b.target(t.To), proto(t.Protocol(), t.Number), named(t.Frontend)
	if t.Kind == service.NodePort {
		if t.Own != nil {
			b.nat(chainNodePorts, "%s -m addrtype --src-type LOCAL %s -j %s", match, who, b.target(t.Own))
		}
		b.nat(chainNodePorts, "%s %s -j %s", match, who, chain)
		return
	}
	match = to(ipnet.Single(t.Addr)) + match
	if t.Kind == service.ClusterIP || !t.Guarded() {
		b.nat(FrontendsChain, "%s %s -j %s", match, who, chain)
		return
	}
	for _, from := range t.SourceRanges {
		if from.Addr().Is4() == b.family.Is4() {
			b.nat(FrontendsChain, "%s%s %s -j %s", address("-s", from), match, who, chain)
		}
	}
}

// target makes the chain of a target, if it is not there yet, and returns its name.
func (b *builder) target(t *Target) string {
	name := chainName(string(t.Kind), t.Of, "")
	if _, done := b.chain("nat", name); done {
		return name
	}
	if t.Pods != nil {
		b.nat(name, "-i %s -j %s", b.host.Management, b.target(t.Pods))
	}
	if t.Own != nil {
		b.nat(name, "-m addrtype --src-type LOCAL -j %s", b.target(t.Own))
	}
	switch {
	case t.Next != nil:
		b.nat(name, "-j %s", b.target(t.Next))
	case t.ByOVN:
		b.nat(name, "-j MARK --set-xmark %s", mark)
		b.nat(name, "-p %s -j DNAT --to-destination %s", strings.ToLower(string(t.Of.Protocol())), t.Of.Cluster())
	default:
		b.balance(name, t)
	}
	return name
}

// balance sends connections to each endpoint with the same probability, or with
// session affinity to the endpoint of the client's last connection.
func (b *builder) balance(chain string, t *Target) {
	l, f := strings.ToLower(string(t.Of.Protocol())), t.Of
	names := make([]string, len(t.To))
	for i, e := range t.To {
		names[i] = chainName(endpointKind(t), f, e.String())
		if _, there := b.chain("nat", names[i]); !there {
			b.endpoint(names[i], f, e)
		}
		if sticky(f) {
			b.nat(chain, "-p %s -m recent --rcheck --seconds %d --reap --name %s --mask %s --rsource -j %s", l, f.Affinity, names[i], b.mask(), names[i])
		}
	}
	for i, name := range names {
		b.nat(chain, "%s-j %s", chance(len(names)-i), name)
	}
}

// endpointKind begins the names of chains of a target's endpoints.
func endpointKind(t *Target) string {
	if t.Hidden {
		return "SEP"
	}
	return "KEP"
}

// endpoint makes the chain of one endpoint.
func (b *builder) endpoint(name string, f service.Frontend, e Destination) {
	if e.Mark {
		b.nat(name, "-j MARK --set-xmark %s", mark)
	}
	affinity := ""
	if sticky(f) {
		affinity = fmt.Sprintf("-m recent --set --name %s --mask %s --rsource ", name, b.mask())
	}
	b.nat(name, "-p %s %s-j DNAT --to-destination %s", strings.ToLower(string(f.Protocol())), affinity, e)
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

// named returns the comment of a rule of a frontend.
func named(f service.Frontend) string {
	text := comment(f.Key, f.Port())
	if f.Kind == service.ExternalIP {
		text = strings.TrimSuffix(text, `"`) + externalMark + `"`
	}
	return text
}

// refuse adds a rule for packets that still have the frontend's address after
// DNAT.
func (b *builder) refuse(f service.Frontend, target string) {
	match := proto(f.Protocol(), f.Number)
	if f.Kind != service.NodePort {
		b.filter(RefuseChain, "%s%s %s -j %s", to(ipnet.Single(f.Addr)), match, named(f), target)
		return
	}
	for _, where := range b.local() {
		b.filter(RefuseChain, "%s%s -m addrtype --dst-type LOCAL %s -j %s", where, match, comment(f.Key, f.Port()), target)
	}
}

// reject returns the target that refuses a connection at once.
func (b *builder) reject(p corev1.Protocol) string {
	switch {
	case p == corev1.ProtocolTCP:
		return "REJECT --reject-with tcp-reset"
	case b.family.Is4():
		return "REJECT --reject-with icmp-port-unreachable"
	}
	return "REJECT --reject-with icmp6-port-unreachable"
}
