package nftables

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// Elements of other programs go, whatever they are: without nft, and together with a change by nft.
func TestForeignElementsGo(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	want := sample("a")
	web := ruleset.Element{Destination: netip.MustParseAddr("192.0.2.9"), Protocol: "tcp", Port: 80, Comment: "default/web"}
	byVerdict, byPort := web, web
	byVerdict.Source, byVerdict.Verdict = netip.MustParsePrefix("10.0.0.0/8"), "goto svc-a"
	byPort.Source = byVerdict.Source
	fields := []ruleset.Field{ruleset.Source, ruleset.Destination, ruleset.Protocol, ruleset.Port}
	want.Sets = append(want.Sets,
		ruleset.Set{Name: "svc-ranges", Key: fields, Value: ruleset.Verdict, Elements: []ruleset.Element{byVerdict}},
		ruleset.Set{Name: "svc-sources", Key: fields, Elements: []ruleset.Element{byPort}})
	other := want
	other.Chains = append(slices.Clone(want.Chains), ruleset.Chain{Name: "svc-new", Rules: []ruleset.Rule{{Text: "accept"}}})
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	synced(t, table, want)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	before := namespace.Listing(t, nft)
	for _, harm := range []string{
		"add element ip ovn-k8s svc-map { 192.0.2.77 . tcp . 80 : accept }",
		"add element ip ovn-k8s svc-map { 192.0.2.77 . gre . 80 : drop }",
		"add element ip ovn-k8s svc-ranges { 10.0.0.1-10.0.0.7 . 192.0.2.1 . tcp . 80 : drop }",
		"delete element ip ovn-k8s svc-sources { 10.0.0.0/8 . 192.0.2.9 . tcp . 80 }; add element ip ovn-k8s svc-sources { 10.0.0.0/8 . 192.0.2.9 . tcp . 80-90 }",
		"delete element ip ovn-k8s svc-sources { 10.0.0.0/8 . 192.0.2.9 . tcp . 80 }; add element ip ovn-k8s svc-sources { 10.0.0.0/8 . 192.0.2.9-192.0.2.10 . tcp . 80 }",
	} {
		for _, to := range []ruleset.Table{want, other} {
			if out, err := exec.Command(nft, harm).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", harm, err, out)
			}
			if changes, read := synced(t, table, to); len(changes) == 0 || !read {
				t.Errorf("%s: read %v, %q", harm, read, changes)
			}
			synced(t, table, want)
			if diff := cmp.Diff(before, namespace.Listing(t, nft)); diff != "" {
				t.Errorf("%s (-before +after):\n%s", harm, diff)
			}
		}
	}
}

// The error about a refused transaction is one line, however many of its messages the kernel refuses.
func TestARefusedTransaction(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	k := kernel{netip.IPv4Unspecified()}
	all := compare(&state{}, "svc-", whole(balanced(k.family, 200)))
	err := k.apply(&plan{newChains: all.newChains[1:], newSets: all.newSets}) // without the table
	if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}
