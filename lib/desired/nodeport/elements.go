package nodeport

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ruleset"
)

// services adds the elements and chains of Services.
func (b *tableBuilder) services(s serviceRules) {
	for _, t := range s.Translations {
		b.claim(t.Frontend)
		b.translation(t)
	}
	for _, r := range s.Refusals {
		b.claim(r.Frontend)
		b.refusal(r)
	}
	for _, f := range s.Strays {
		b.element(setStrayPorts, ruleset.Element{Protocol: "tcp", Port: f.Number})
	}
}

// claim adds a TCP frontend at an external IP to those that spare exempts: its address may become that of a server before
// the Services are known again.
func (b *tableBuilder) claim(f service.Frontend) {
	if f.Kind == service.ExternalIP && f.Protocol() == corev1.ProtocolTCP {
		b.element(setClaims, ruleset.Element{Destination: f.Addr, Protocol: "tcp", Port: f.Number})
	}
}

// translation adds the elements of a frontend, and the chains of its port, if it has any.
func (b *tableBuilder) translation(t Translation) {
	e := ruleset.Element{Destination: t.Addr, Protocol: lower(t.Protocol()), Port: t.Number}
	if t.Kind == service.NodePort {
		e.Destination = netip.Addr{}
		b.leads(mapNodePorts, mapNodePortIPs, "svc-nodeport-cluster-ip", e, t.To)
		if t.Own != nil {
			e.Verdict, e.Comment = "goto "+b.target(t.Own), name(t.Frontend)
			b.element(mapOwnNodePorts, e)
		}
		return
	}
	if t.Kind == service.ClusterIP || !t.Guarded() {
		b.leads(mapFrontends, mapClusterIPs, "svc-cluster-ip", e, t.To)
		return
	}
	for _, from := range disjoint(t.SourceRanges, b.Family) {
		e.Source = from
		b.leads(mapRanges, mapClusterIPs, "svc-cluster-ip", e, t.To)
	}
}

// leads adds an element that leads to a target: to the chain shared by all Services whose endpoint OVN chooses, which
// takes the destination from another map, or to a chain of the port.
func (b *tableBuilder) leads(verdicts, destinations, shared string, e ruleset.Element, t *Target) {
	for t.Next != nil && t.Pods == nil && t.Own == nil {
		t = t.Next
	}
	e.Comment = t.label()
	if !t.ByOVN {
		e.Verdict = "goto " + b.target(t)
		b.element(verdicts, e)
		return
	}
	to := e.Bare()
	to.Source, to.To = netip.Prefix{}, t.Of.Cluster()
	b.element(destinations, to)
	e.Verdict = "goto " + shared
	b.element(verdicts, e)
}

// disjoint returns the prefixes of a family that no other contains.
func disjoint(all []netip.Prefix, family netip.Addr) (out []netip.Prefix) {
	for i, p := range all {
		within := func(j int, q netip.Prefix) bool {
			return q.Contains(p.Addr()) && (q.Bits() < p.Bits() || q.Bits() == p.Bits() && j < i)
		}
		contained := false
		for j, q := range all {
			contained = contained || j != i && within(j, q)
		}
		if p.Addr().Is4() == family.Is4() && !contained {
			out = append(out, p.Masked())
		}
	}
	return out
}

// target makes the chain of a target, if it is not there yet, and returns its name.
func (b *tableBuilder) target(t *Target) string {
	chain := objectName(string(t.Kind), t.Of, "")
	if b.chains[chain] != nil {
		return chain
	}
	who := name(t.Of)
	b.chains[chain] = &ruleset.Chain{Name: chain}
	if t.Pods != nil {
		b.does(who, chain, ruleset.FromInterface{Name: b.Host.Management}, ruleset.GoTo{Chain: b.target(t.Pods)})
	}
	if t.Own != nil {
		b.does(who, chain, ruleset.FromHere{}, ruleset.GoTo{Chain: b.target(t.Own)})
	}
	switch {
	case t.Next != nil:
		b.does(who, chain, ruleset.GoTo{Chain: b.target(t.Next)})
	case t.ByOVN:
		b.does(who, chain, marked)
		b.does(who, chain, ruleset.Translate{Protocol: lower(t.Of.Protocol()), To: t.Of.Cluster()})
	default:
		b.balance(chain, t)
	}
	return chain
}

// balance sends connections to each endpoint with the same probability, or with session affinity to the endpoint of the
// client's last connection.
func (b *tableBuilder) balance(chain string, t *Target) {
	var ends []string
	for _, e := range t.To {
		end := b.endpoint(t, e)
		ends = append(ends, end)
		if sticky(t.Of) {
			b.does(name(t.Of), chain, ruleset.FromOneOf{Set: b.affinity(t, e), Family: b.Family}, ruleset.GoTo{Chain: end})
		}
	}
	switch len(ends) {
	case 0:
	case 1:
		b.does(name(t.Of), chain, ruleset.GoTo{Chain: ends[0]})
	default:
		b.does(name(t.Of), chain, ruleset.GoToAny{Chains: ends})
	}
}

// endpoint makes the chain of one endpoint, and returns its name.
func (b *tableBuilder) endpoint(t *Target, e Destination) string {
	chain := objectName(endpointKind(t), t.Of, e.String())
	if b.chains[chain] != nil {
		return chain
	}
	who := name(t.Of)
	if e.Mark {
		b.does(who, chain, marked)
	}
	if sticky(t.Of) {
		b.does(who, chain, ruleset.Remember{Set: b.affinity(t, e), Family: b.Family})
	}
	b.does(who, chain, ruleset.Translate{Protocol: lower(t.Of.Protocol()), To: e.AddrPort})
	return chain
}

// affinity makes the set of an endpoint's clients, and returns its name. Another timeout makes another set.
func (b *tableBuilder) affinity(t *Target, e Destination) string {
	set := objectName("affinity", t.Of, fmt.Sprint(endpointKind(t), e, t.Of.Affinity))
	b.sets[set] = &ruleset.Set{Name: set, Key: []ruleset.Field{ruleset.Source}, Timeout: t.Of.Affinity}
	return set
}

// objectName names an object of one port of a Service.
func objectName(kind string, f service.Frontend, more string) string {
	return ObjectPrefix + strings.ToLower(strings.TrimPrefix(chainName(kind, f, more), ChainPrefix))
}

// refusal adds an element for packets that still have a frontend's address after DNAT.
func (b *tableBuilder) refusal(f Refusal) {
	e := ruleset.Element{Destination: f.Addr, Protocol: lower(f.Protocol()), Port: f.Number, Verdict: "drop", Comment: name(f.Frontend)}
	if f.Reject {
		e.Verdict = "goto svc-reject"
	}
	if f.Kind == service.NodePort {
		e.Destination = netip.Addr{}
		b.element(mapRefusedPorts, e)
		return
	}
	b.element(mapRefused, e)
}

// hostPortElements adds the elements for the rules of builder.hostPorts. An older hostPort at all addresses hides younger ones
// of the same number.
func (b *tableBuilder) hostPortElements() {
	if len(b.HostPorts) == 0 {
		return
	}
	b.hostPortChains()
	everywhere := map[ruleset.Element]bool{}
	for _, h := range b.HostPorts {
		e := ruleset.Element{Protocol: lower(h.Protocol), Port: h.Port}
		if everywhere[e] {
			continue
		}
		verdicts, destinations, verdict, strays := mapHostPorts, mapHostPortPods, "goto svc-hostport", setStrayPorts
		if h.IP.IsValid() && !h.IP.IsUnspecified() {
			e.Destination = h.IP
			verdicts, destinations, verdict, strays = mapHostPortsAt, mapHostPortsTo, "goto svc-address-hostport", setStraysAt
		} else {
			everywhere[e] = true
		}
		if b.Host.Shared != "" && h.Protocol == corev1.ProtocolTCP {
			b.element(strays, e)
		}
		to := e
		to.To = h.To
		b.element(destinations, to)
		e.Verdict, e.Comment = verdict, "pod "+h.Of.Key.String()
		b.element(verdicts, e)
	}
	b.ownConnections()
}

// hostPortChains makes the chains of hostPorts.
func (b *tableBuilder) hostPortChains() {
	b.rule("svc-translate", "fib daddr type local jump svc-translate-hostports")
	if m := b.Host.Management; m != "" {
		b.rule("svc-translate-hostports", "iifname %q return", m)
	}
	b.rule("svc-translate-hostports", "%s vmap @%s", b.toAddress(), mapHostPortsAt)
	b.rule("svc-translate-hostports", "%s vmap @%s", toPort, mapHostPorts)
	hidden := "fib saddr type local "
	if b.Host.Shared != "" {
		hidden = ""
	}
	for chain, key := range map[string]string{"svc-hostport": toPort + " map @" + mapHostPortPods, "svc-address-hostport": b.toAddress() + " map @" + mapHostPortsTo} {
		b.rule(chain, "%s%s", hidden, marked)
		b.rule(chain, "%s dnat to %s", transport, key)
	}
}

// ownConnections is builder.ownConnections for nftables. The first rule of svc-postrouting excepts tunnels.
func (b *tableBuilder) ownConnections() {
	m := b.Host.Management
	if m == "" || b.Host.Shared != "" {
		return
	}
	done := map[string]bool{}
	for _, h := range b.HostPorts {
		l := lower(h.Protocol)
		rule := fmt.Sprintf("%s saddr %s oifname != %q %s sport %d", b.ip, h.To.Addr(), m, l, h.Target)
		if !h.Outside(b.Family) || done[rule] {
			continue
		}
		done[rule] = true
		b.about("pod "+h.Of.Key.String(), "svc-postrouting", "%s masquerade fully-random", rule)
	}
}
