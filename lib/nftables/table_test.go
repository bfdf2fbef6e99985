package nftables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// sample has a map, a set of the kernel's, a base chain and another, with one element for each target.
func sample(targets ...string) ruleset.Table {
	key := []ruleset.Field{ruleset.Destination, ruleset.Protocol, ruleset.Port}
	m := ruleset.Set{Name: "svc-map", Key: key, Value: ruleset.Verdict}
	t := ruleset.Table{Chains: []ruleset.Chain{{Name: "svc-base", Type: "nat", Hook: "output", Priority: "-110", Rules: []ruleset.Rule{{Text: "ip daddr . meta l4proto . th dport vmap @svc-map", Comment: "all"}}}}}
	for i, target := range targets {
		t.Chains = append(t.Chains, ruleset.Chain{Name: "svc-" + target, Rules: []ruleset.Rule{{Text: "update @svc-clients { ip saddr }"}, {Text: "meta l4proto tcp dnat to 10.0.0.1:80", Comment: target}}})
		m.Elements = append(m.Elements, ruleset.Element{Destination: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Protocol: "tcp", Port: 80, Verdict: "goto svc-" + target, Comment: strings.Repeat(target, 100)})
	}
	t.Sets = []ruleset.Set{m, {Name: "svc-clients", Key: []ruleset.Field{ruleset.Source}, Timeout: 60}}
	return t
}

// synced makes the table equal to a sample, and checks what a new process finds.
func synced(t *testing.T, table *Table, want ruleset.Table) (changes []string, read bool) {
	t.Helper()
	changes, read, err := table.Sync(t.Context(), "svc-", want)
	if err != nil {
		t.Fatal(err)
	}
	fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if left, err := fresh.Plan("svc-", want); err != nil || len(left) > 0 {
		t.Errorf("not as wanted: %v, %q", err, left)
	}
	return changes, read
}

// Issue 16: a change costs what it changes, and the table is read only after changes of other programs.
func TestATableCostsWhatChanges(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if _, read := synced(t, table, sample("a", "b", "c")); !read {
		t.Error("it takes the table for empty")
	}
	if changes, read := synced(t, table, sample("a", "b", "c")); len(changes) > 0 || read {
		t.Errorf("the same again: read %v, %q", read, changes)
	}
	changes, read := synced(t, table, sample("a", "b", "d"))
	if read || !slices.Contains(changes, "delete element svc-map { 192.0.2.2 . tcp . 80 }") || !slices.Contains(changes, "delete chain svc-c") || len(changes) != 7 {
		t.Errorf("another target: read %v, %q", read, changes)
	}
	for what, harm := range map[string][]string{
		"everything":      {"flush", "ruleset"},
		"the table":       {"delete", "table", "ip", "ovn-k8s"},
		"an element":      {"delete", "element", "ip", "ovn-k8s", "svc-map", "{ 192.0.2.1 . tcp . 80 }"},
		"rules":           {"flush", "chain", "ip", "ovn-k8s", "svc-a"},
		"a rule too much": {"insert", "rule", "ip", "ovn-k8s", "svc-base", "accept"},
	} {
		namespace.NFT(t, harm...)
		if changes, read := synced(t, table, sample("a", "b", "d")); len(changes) == 0 || !read {
			t.Errorf("%s: read %v, %q", what, read, changes)
		}
	}
	namespace.NFT(t, "add", "table", "ip", "stranger")
	if changes, read := synced(t, table, sample("a", "b", "d")); len(changes) > 0 || !read {
		t.Errorf("another table: read %v, %q", read, changes)
	}
	namespace.NFT(t, "add", "chain", "ip", "ovn-k8s", "gw-own")
	synced(t, table, ruleset.Table{})
	if left := namespace.NFT(t, "list", "table", "ip", "ovn-k8s"); !strings.Contains(left, "gw-own") || strings.Contains(left, "svc-") {
		t.Errorf("left: %s", left)
	}
	if _, _, err := table.Sync(t.Context(), "gw-", ruleset.Table{}); err != nil {
		t.Fatal(err)
	}
	if left := namespace.NFT(t, "list", "tables"); strings.Contains(left, "ovn-k8s") {
		t.Errorf("left: %s", left)
	}
}

// hideNFT leaves the test without nft, and returns the program.
func hideNFT(t *testing.T) (program string) {
	t.Helper()
	program, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	return program
}

// Issue 16: the table is read, elements change and everything goes without nft. Only texts of rules and new objects need it: an
// error says so, and nothing is done.
func TestATableWithoutNFT(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	synced(t, table, sample("a", "b", "c"))
	program := hideNFT(t)
	fresh := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if changes, read := synced(t, fresh, sample("a", "b", "c")); len(changes) > 0 || !read {
		t.Errorf("as it was: read %v, %q", read, changes)
	}
	want := sample("a", "b", "c")
	m := &want.Sets[0]
	m.Elements = []ruleset.Element{m.Elements[0], m.Elements[2], {Destination: netip.MustParseAddr("192.0.2.9"), Protocol: "sctp", Port: 65535, Verdict: "drop"}}
	m.Elements[1].Verdict = "goto svc-b"
	if changes, read := synced(t, fresh, want); len(changes) != 4 || read {
		t.Errorf("elements: read %v, %q", read, changes)
	}
	out, err := exec.Command(program, "list", "map", "ip", "ovn-k8s", "svc-map").CombinedOutput()
	for _, text := range []string{"192.0.2.9 . sctp . 65535 : drop", "192.0.2.2 . tcp . 80 comment \"" + strings.Repeat("c", 100) + "\" : goto svc-b"} {
		if err != nil || !strings.Contains(string(out), text) {
			t.Errorf("no %q: %v: %s", text, err, out)
		}
	}
	changes, _, err := fresh.Sync(t.Context(), "svc-", sample("a", "b", "d"))
	if !errors.Is(err, ErrUnwritable) || len(changes) > 0 || !strings.Contains(err.Error(), "install the package nftables") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a rule: %v, %q", err, changes)
	}
	synced(t, fresh, want)
	less := sample("a", "b")
	if changes, _ := synced(t, fresh, less); !slices.Contains(changes, "delete chain svc-c") {
		t.Errorf("a chain less: %q", changes)
	}
	synced(t, fresh, ruleset.Table{})
	if left, err := exec.Command(program, "list", "tables").CombinedOutput(); err != nil || strings.Contains(string(left), "ovn-k8s") {
		t.Errorf("left: %v: %s", err, left)
	}
}

// Issue 16: of a long chain, as of a Service with session affinity, only rules that differ are written, in their order.
func TestRulesOfAChainAreEdited(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	chain := func(marks ...int) ruleset.Table {
		c := ruleset.Chain{Name: "svc-long"}
		for _, m := range marks {
			c.Rules = append(c.Rules, ruleset.Rule{Text: fmt.Sprintf("meta mark set %d", m), Comment: "default/web"})
		}
		return ruleset.Table{Chains: []ruleset.Chain{c}}
	}
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	many := make([]int, 100)
	for i := range many {
		many[i] = i
	}
	synced(t, table, chain(many...))
	other := slices.Concat(many[:50], []int{1000}, many[51:])
	if changes, _ := synced(t, table, chain(other...)); len(changes) != 2 {
		t.Errorf("one rule of 100: %q", changes)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		now := make([]int, r.IntN(8))
		for i := range now {
			now[i] = r.IntN(5)
		}
		synced(t, table, chain(now...))
	}
	synced(t, table, chain(1, 2, 3))
	namespace.NFT(t, "insert", "rule", "ip", "ovn-k8s", "svc-long", "accept")
	namespace.NFT(t, "delete", "rule", "ip", "ovn-k8s", "svc-long", "handle", handleOf(t, "meta mark set 0x00000002"))
	synced(t, table, chain(1, 2, 4))
}

// An nft that does not work, such as without a kernel module, is not tried at each question.
func TestABrokenNFTIsNotTriedAllTheTime(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "nft"), fmt.Appendf(nil, "#!/bin/sh\necho >>%s\nexit 1\n", calls), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	for range 5 {
		if table.Works() == nil {
			t.Error("it works")
		}
	}
	if said, err := os.ReadFile(calls); err != nil || len(said) != 1 {
		t.Errorf("%d calls, %v", len(said), err)
	}
	if err := os.Remove(filepath.Join(dir, "nft")); err != nil {
		t.Fatal(err)
	}
	if err := table.Works(); err != nil {
		t.Errorf("another program: %v", err)
	}
}

// handleOf returns the handle of a rule of the table.
func handleOf(t *testing.T, text string) string {
	t.Helper()
	for line := range strings.Lines(namespace.NFT(t, "-a", "list", "table", "ip", "ovn-k8s")) {
		if _, handle, ok := strings.Cut(line, "# handle "); ok && strings.Contains(line, text) {
			return strings.TrimSpace(handle)
		}
	}
	t.Fatalf("no rule %q", text)
	return ""
}
