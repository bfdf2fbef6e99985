package iptables

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/require"
)

// A rule of nft hides its whole table from iptables-save. Rules in other chains are kept all the same. Otherwise an error
// says what to do, and nothing is written: each change would lead to another attempt.
func TestRulesOfNFTBesideOurs(t *testing.T) {
	inFreshNamespace(t)
	if _, err := exec.LookPath("nft"); err != nil {
		require.Nothing(t, require.Node, "nft")
	}
	f := families[0]
	fw, err := New(f.any)
	if err != nil {
		t.Fatal(err)
	}
	if !fw.Announces() {
		require.Nothing(t, require.Node, "iptables with nf_tables: the rules of iptables-legacy are not in nftables")
	}
	sync := func(chains []Chain) []string {
		t.Helper()
		changes, err := fw.Sync(t.Context(), "OVN-K8S-", chains)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	output(t, "iptables", "-A", "INPUT", "-j", "ACCEPT") // makes the chain
	output(t, "nft", "add rule ip filter INPUT ct state established accept")
	if !fw.Incompatible(t.Context(), "filter") {
		t.Fatal("iptables prints the table")
	}
	chains := f.chains()
	first := sync(chains)
	want := output(t, "iptables", "-S", "FORWARD") + output(t, "iptables", "-S", "OVN-K8S-FWD")
	if len(first) == 0 || !strings.Contains(want, "-A FORWARD -j OVN-K8S-FWD") {
		t.Errorf("%q:\n%s", first, want)
	}
	if again := sync(chains); again != nil {
		t.Errorf("a second time: %q", again)
	}
	output(t, "iptables", "-D", "FORWARD", "-j", "OVN-K8S-FWD")
	output(t, "iptables", "-A", "OVN-K8S-FWD", "-j", "DROP")
	sync(chains)
	if diff := cmp.Diff(want, output(t, "iptables", "-S", "FORWARD")+output(t, "iptables", "-S", "OVN-K8S-FWD")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	chains[3].From = "INPUT"
	before := output(t, "nft", "list", "ruleset")
	_, err = fw.Sync(t.Context(), "OVN-K8S-", chains)
	if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "set external_ids:ovn-k8s-firewall=nftables") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, output(t, "nft", "list", "ruleset")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	chains[3].IfDrops = true // nothing is needed there
	sync(chains)
}
