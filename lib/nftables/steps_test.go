package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// owned is a part of a Service with an element and a chain with a jump to another one; the kernel refuses a missing chain.
func owned(at byte, to string) *ruleset.Table {
	p := part(at, fmt.Sprint("of-", at))
	p.Owner = fmt.Sprint("service default/web-", at)
	p.Chains[0].Rules = []ruleset.Rule{ruleset.NewRule("", ruleset.Remember{Set: p.Sets[1].Name, Family: netip.IPv4Unspecified()}), ruleset.NewRule("", ruleset.GoTo{Chain: to})}
	return p
}

// L3: a refused part holds back no other one. The error names its Service, which keeps its former rules.
func TestARefusedPartHoldsBackNoOther(t *testing.T) {
	namespace.Load(t, "")
	inParts := func(parts ...*ruleset.Table) ruleset.Table {
		return inParts(append([]*ruleset.Table{{Chains: []ruleset.Chain{{Name: "svc-end"}}}}, parts...)...)
	}
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	var parts []*ruleset.Table
	for i := range byte(9) {
		parts = append(parts, owned(i, "svc-end"))
	}
	synced(t, table, inParts(parts[:4]...))
	check := func(when string, want ruleset.Table) {
		t.Helper()
		fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
		if changes, err := fresh.Plan("svc-", want); err != nil || len(changes) > 0 {
			t.Errorf("%s: missing %q, %v", when, changes, err)
		}
	}
	refused := func(table *Table, names string, want ruleset.Table) {
		t.Helper()
		_, _, err := table.Sync(t.Context(), "svc-", want)
		if !errors.Is(err, ErrRefused) || !strings.Contains(fmt.Sprint(err), "the kernel refuses rules of "+names+": ") {
			t.Errorf("%s: %v", names, err)
		}
	}
	wrong := slices.Clone(parts)
	wrong[2], wrong[7] = owned(2, "svc-nowhere"), owned(7, "svc-nowhere")
	const both = "service default/web-2, service default/web-7"
	refused(table, both, inParts(wrong...))
	others := slices.Delete(slices.Clone(parts), 7, 8)
	check("the others", inParts(others...))
	for _, when := range []string{"again", "a third time"} {
		refused(table, both, inParts(wrong...))
		check(when, inParts(others...))
	}
	synced(t, table, inParts(parts...))
	check("all", inParts(parts...))
	// The last group is refused, so the table is not known afterwards.
	last := slices.Clone(parts)
	last[8] = owned(8, "svc-nowhere")
	for range 3 {
		refused(table, "service default/web-8", inParts(last...))
		check("the last", inParts(parts...))
	}
	// A new process reads the former rules back.
	table = NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	for range 3 {
		refused(table, both, inParts(wrong...))
		check("after a restart", inParts(parts...))
	}
	// They go with their Service.
	refused(table, "service default/web-2", inParts(slices.Delete(slices.Clone(wrong), 7, 8)...))
	check("without a Service", inParts(others...))
	// An address of a refused part goes to another one.
	table = NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	synced(t, table, inParts(parts...))
	heir := owned(2, "svc-end")
	heir.Owner, heir.Chains[0].Name = "service default/heir", "svc-heir"
	heir.Sets[0].Elements[0].Verdict = "goto svc-heir"
	heir.Sets = heir.Sets[:1]
	heir.Chains[0].Rules = heir.Chains[0].Rules[1:]
	loser := owned(20, "svc-nowhere")
	loser.Owner = parts[2].Owner
	now := append(slices.Clone(others), heir, loser)
	now = slices.Delete(now, 2, 3)
	refused(table, parts[2].Owner, inParts(now...))
	check("the heir has the address", inParts(now[:len(now)-1]...))
}

// Many new objects of several parts are written in several transactions, as if at once.
func TestManyNewObjectsAreWrittenInSteps(t *testing.T) {
	namespace.Load(t, "")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	synced(t, table, inParts())
	var parts []*ruleset.Table
	for i := range byte(30) {
		p := owned(i, "svc-base-end")
		p.Chains[0].Rules = []ruleset.Rule{ruleset.NewRule("", ruleset.SetMark{Bits: 1})}
		for n := range maxNew / 10 {
			p.Chains = append(p.Chains, ruleset.Chain{Name: fmt.Sprint(p.Chains[0].Name, "-", n)})
		}
		parts = append(parts, p)
	}
	generation := func() uint32 {
		now, err := link.PacketFilterGeneration()
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := generation()
	synced(t, table, inParts(parts...))
	if n := generation() - before; n < 3 || n > 4 { // nine parts each
		t.Errorf("%d transactions", n)
	}
	if changes, read := synced(t, table, inParts(parts...)); read || len(changes) > 0 {
		t.Errorf("again: read %v, %d changes", read, len(changes))
	}
	before = generation()
	synced(t, table, inParts(parts[:20]...))
	if n := generation() - before; n != 1 {
		t.Errorf("%d transactions to remove some", n)
	}
}
