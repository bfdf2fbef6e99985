package nftables

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
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
	fresh, err := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := fresh.Plan(t.Context(), "svc-", want); err != nil || len(left) > 0 {
		t.Errorf("not as wanted: %v, %q", err, left)
	}
	return changes, read
}

func nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v: %s", args, err, out)
	}
	return string(out)
}

// Issue 16: a change costs what it changes, and the table is read only after changes of other programs.
func TestATableCostsWhatChanges(t *testing.T) {
	load(t, "table ip other { }")
	table, err := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if err != nil {
		t.Fatal(err)
	}
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
		nft(t, harm...)
		if changes, read := synced(t, table, sample("a", "b", "d")); len(changes) == 0 || !read {
			t.Errorf("%s: read %v, %q", what, read, changes)
		}
	}
	nft(t, "add", "table", "ip", "stranger")
	if changes, read := synced(t, table, sample("a", "b", "d")); len(changes) > 0 || !read {
		t.Errorf("another table: read %v, %q", read, changes)
	}
	nft(t, "add", "chain", "ip", "ovn-k8s", "gw-own")
	synced(t, table, ruleset.Table{})
	if left := nft(t, "list", "table", "ip", "ovn-k8s"); !strings.Contains(left, "gw-own") || strings.Contains(left, "svc-") {
		t.Errorf("left: %s", left)
	}
	if _, _, err := table.Sync(t.Context(), "gw-", ruleset.Table{}); err != nil {
		t.Fatal(err)
	}
	if left := nft(t, "list", "tables"); strings.Contains(left, "ovn-k8s") {
		t.Errorf("left: %s", left)
	}
}

// Issue 16: a process that finds the table as it should be reads it by one command.
func TestATableIsReadOnce(t *testing.T) {
	load(t, "table ip other { }")
	table, err := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	if err != nil {
		t.Fatal(err)
	}
	synced(t, table, sample("a", "b", "c"))
	program, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "nft"), fmt.Appendf(nil, "#!/bin/sh\necho \"$*\" >>%s\nexec %s \"$@\"\n", calls, program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	synced(t, table, sample("a", "b", "c"))
	said, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(said), " list ") != 1 {
		t.Errorf("calls: %s", said)
	}
}
