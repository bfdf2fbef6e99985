package nftables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// inParts has the objects of sample, each target in a part with an element, a chain and a set of its own.
func inParts(targets ...*ruleset.Table) ruleset.Table {
	t := sample()
	t.Parts = targets
	return t
}

// part is one target at an address.
func part(at byte, target string) *ruleset.Table {
	m := sample().Sets[0]
	clients := ruleset.Set{Name: "svc-clients-" + target, Key: []ruleset.Field{ruleset.Source}, Timeout: 60}
	m.Elements = []ruleset.Element{{Destination: netip.AddrFrom4([4]byte{192, 0, 2, at}), Protocol: "tcp", Port: 80, Verdict: "goto svc-" + target, Comment: strings.Repeat(target, 100)}}
	update := ruleset.Rule{Text: "update @" + clients.Name + " { ip saddr }"}
	return &ruleset.Table{Chains: []ruleset.Chain{{Name: "svc-" + target, Rules: []ruleset.Rule{update}}}, Sets: []ruleset.Set{m, clients}}
}

// A table in parts is written as one without, whatever was written before, and another program's changes are repaired.
func TestTablesInParts(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	r := rand.New(rand.NewPCG(3, 4))
	parts := map[byte]*ruleset.Table{}
	for round := range 60 {
		for at := range byte(8) {
			switch r.IntN(6) {
			case 0:
				parts[at] = part(at, fmt.Sprintf("t%d-%d", at, r.IntN(3)))
			case 1:
				delete(parts, at)
			}
		}
		var all []*ruleset.Table
		for _, p := range parts { // in any order
			all = append(all, p)
		}
		if round%10 == 9 {
			namespace.NFT(t, "flush", "map", "ip", "ovn-k8s", "svc-map")
		}
		_, read := synced(t, table, inParts(all...))
		if wanted := round == 0 || round%10 == 9; read != wanted {
			t.Errorf("round %d: read %v", round, read)
		}
		if changes, read := synced(t, table, inParts(all...).Whole()); len(changes) > 0 || read {
			t.Errorf("round %d, the same without parts: read %v, %q", round, read, changes)
		}
		if round%2 == 0 {
			synced(t, table, inParts(all...))
		}
	}
	fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	a, b := part(1, "a"), part(2, "b")
	synced(t, fresh, inParts(a, b))
	if changes, _ := synced(t, fresh, inParts(b)); len(changes) != 4 {
		t.Errorf("a part less: %q", changes)
	}
	synced(t, fresh, ruleset.Table{})
}

// Names of parts may have the prefix of a smaller table.
func TestAPartGoesWithASmallerTable(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	loose := &ruleset.Table{Chains: []ruleset.Chain{{Name: "svc-loose-end", Rules: []ruleset.Rule{{Text: "accept"}}}}}
	want := inParts(part(1, "a"), loose)
	synced(t, table, want)
	if !table.Has("svc-clients-a") || table.Has("svc-clients-b") {
		t.Error("sets of parts are not found")
	}
	changes, read, err := table.Sync(t.Context(), "svc-loose", ruleset.Table{})
	if read || err != nil || !slices.Equal(changes, []string{"flush chain svc-loose-end", "delete chain svc-loose-end"}) {
		t.Errorf("read %v, %v, %q", read, err, changes)
	}
	if changes, _ := synced(t, table, want); len(changes) != 2 {
		t.Errorf("it comes back: %q", changes)
	}
}

// Parts written before cost nothing.
func TestPartsWrittenBeforeCostNothing(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	cost := map[int]float64{}
	for _, n := range []int{20, 200} {
		table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
		var parts []*ruleset.Table
		for i := range n {
			parts = append(parts, part(byte(i), fmt.Sprint("t", i)))
		}
		synced(t, table, inParts(parts...))
		cost[n] = testing.AllocsPerRun(5, func() {
			parts = slices.Clone(parts)
			parts[n/2] = part(byte(n/2), fmt.Sprint("t", n/2))
			if changes, _, err := table.Sync(t.Context(), "svc-", inParts(parts...)); err != nil || len(changes) > 0 {
				t.Errorf("%v, %q", err, changes)
			}
		})
		synced(t, table, ruleset.Table{})
	}
	if cost[200] > 1.5*cost[20] {
		t.Errorf("allocations for one part of 20 and of 200: %v", cost)
	}
}
