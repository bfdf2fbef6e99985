package nftables

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	netfilter "github.com/google/nftables"
	"github.com/google/nftables/expr"

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

// Nor do those that cannot be read back, such as a rule of another program with an expression that the library does not know.
func TestUnreadableFormerRulesHoldBackNobody(t *testing.T) {
	namespace.Load(t, "")
	synced(t, NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration), inParts(part(1, "of-1")))
	c, err := netfilter.New()
	if err != nil {
		t.Fatal(err)
	}
	unknown := &expr.Limit{Type: expr.LimitTypePkts, Rate: 10, Unit: 7}
	c.AddRule(&netfilter.Rule{Table: kernel{netip.IPv4Unspecified()}.table(), Chain: &netfilter.Chain{Name: "svc-of-1"}, Exprs: []expr.Any{unknown}})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	wrong, other := owned(1, "svc-nowhere"), part(4, "other")
	_, _, err = NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration).Sync(t.Context(), "svc-", inParts(wrong, other))
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "without former rules: ") {
		t.Error(err)
	}
	fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if changes, err := fresh.Plan("svc-", inParts(other)); err != nil || len(changes) > 0 {
		t.Errorf("%v, %q", err, changes)
	}
}

// Whenever another program removes former rules, only the refused Service lacks rules.
func TestFormerRulesRemovedMeanwhileHoldBackNobody(t *testing.T) {
	namespace.Load(t, "")
	queries, after := 0, 0
	var harm string
	table := NewTable(netip.IPv4Unspecified(), func() (uint32, error) {
		now, err := link.PacketFilterGeneration()
		if queries++; queries == after {
			namespace.NFT(t, harm)
		}
		return now, err
	})
	for _, harm = range []string{"flush ruleset", "flush chain ip ovn-k8s svc-of-1"} {
		for after = 1; queries >= after || after == 1; after++ {
			queries = after // from here on nothing happens
			if _, _, err := table.Sync(t.Context(), "svc-", inParts(part(1, "of-1"), part(2, "same"))); err != nil {
				t.Fatal(err)
			}
			table.state, queries = nil, 0 // as of a new process
			wrong := owned(1, "svc-nowhere")
			_, _, err := table.Sync(t.Context(), "svc-", inParts(wrong, part(2, "same"), part(4, "other")))
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "rules of "+wrong.Owner+": ") {
				t.Errorf("%s after query %d: %v", harm, after, err)
			}
		}
		if after < 10 {
			t.Errorf("%s: %d queries", harm, after)
		}
	}
}
