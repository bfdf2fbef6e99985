package nftables

import (
	"errors"
	"net/netip"
	"testing"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// chosen is a part of a Service with a random choice of endpoints and session affinity. The kernel refuses a missing end.
func chosen(ends ...string) *ruleset.Table {
	v4, to := netip.IPv4Unspecified(), netip.MustParseAddrPort("10.0.0.1:80")
	at := ruleset.Element{Destination: netip.MustParseAddr("192.0.2.9"), Protocol: "tcp", Port: 80}
	leads, other := at, at
	leads.Verdict, leads.Comment = "goto svc-choice", "default/web:http"
	other.To = to
	s := sample().Sets[0]
	s.Elements = []ruleset.Element{leads}
	p := &ruleset.Table{Owner: "service default/web", Sets: []ruleset.Set{s, {Name: "svc-to", Key: s.Key, Value: ruleset.AddrPort, Elements: []ruleset.Element{other}}}}
	choice := ruleset.Chain{Name: "svc-choice"}
	var all []string
	for _, end := range ends {
		chain, clients := "svc-end-"+end, "svc-clients-"+end
		all = append(all, chain)
		if end == "missing" {
			continue
		}
		if len(all) == 1 {
			choice.Rules = append(choice.Rules, ruleset.NewRule("", ruleset.FromOneOf{Set: clients, Family: v4}, ruleset.GoTo{Chain: chain}))
		}
		p.Sets = append(p.Sets, ruleset.Set{Name: clients, Key: []ruleset.Field{ruleset.Source}, Timeout: 60})
		p.Chains = append(p.Chains, ruleset.Chain{Name: chain, Rules: []ruleset.Rule{
			ruleset.NewRule("", ruleset.Remember{Set: clients, Family: v4}), ruleset.NewRule("", ruleset.Translate{Protocol: "tcp", To: to}),
		}})
	}
	choice.Rules = append(choice.Rules, ruleset.NewRule("", ruleset.GoToAny{Chains: all}))
	p.Chains = append(p.Chains, choice)
	return p
}

// A new process leaves everything of a refused Service as it was, whatever was to replace it, and nothing of others.
func TestFormerRulesAreReadBack(t *testing.T) {
	namespace.Load(t, "")
	of := func(parts ...*ruleset.Table) ruleset.Table {
		want := inParts(parts...)
		want.Sets = append(want.Sets, ruleset.Set{Name: "svc-to", Key: want.Sets[0].Key, Value: ruleset.AddrPort})
		return want
	}
	gone := part(3, "gone")
	synced(t, NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration), of(chosen("a", "b", "c"), gone, part(4, "other")))
	restarted := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	wrong, other := chosen("d", "missing"), part(4, "new")
	heir := part(5, "heir") // of an address: never with former rules of others
	heir.Owner, heir.Chains[0].Rules = "service default/heir", []ruleset.Rule{ruleset.NewRule("", ruleset.GoTo{Chain: "svc-nowhere"})}
	heir.Sets[0].Elements[0].Destination = gone.Sets[0].Elements[0].Destination
	for i := range 3 {
		if _, _, err := restarted.Sync(t.Context(), "svc-", of(wrong, other, heir)); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
		if changes, err := fresh.Plan("svc-", of(chosen("a", "b", "c"), other)); err != nil || len(changes) > 0 {
			t.Errorf("try %d: %v, %q", i, err, changes)
		}
	}
	for _, now := range []ruleset.Table{of(chosen("d"), other), of(other), of(chosen("a", "b"), other)} {
		if changes, _ := synced(t, restarted, now); len(changes) == 0 {
			t.Errorf("no changes to %d parts", len(now.Parts))
		}
	}
}

// Former rules that use what has to go hold back no other Service.
func TestFormerRulesHoldBackNobody(t *testing.T) {
	namespace.Load(t, "")
	old := part(1, "of-1")
	old.Sets = append(old.Sets, ruleset.Set{Name: "svc-former", Key: []ruleset.Field{ruleset.Port}, Value: ruleset.Verdict})
	old.Chains[0].Rules = append(old.Chains[0].Rules, ruleset.Rule{Text: "tcp dport vmap @svc-former"})
	synced(t, NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration), inParts(old))
	wrong, other := owned(1, "svc-nowhere"), part(4, "other")
	if _, _, err := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration).Sync(t.Context(), "svc-", inParts(wrong, other)); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if changes, err := fresh.Plan("svc-", inParts(other)); err != nil || len(changes) > 0 {
		t.Errorf("%v, %q", err, changes)
	}
}
