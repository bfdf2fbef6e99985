package firewall

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
)

// Issue 16: until the Services are known, servers are spared from the rules that a process with the other program has left:
// an external IP could hide a server that is new in the settings.
func TestServersAreSparedFromFormerRules(t *testing.T) {
	inFreshNamespace(t)
	host := func(servers ...string) (h nodeport.Host) {
		for _, s := range servers {
			h.Servers = append(h.Servers, netip.MustParseAddrPort(s))
		}
		return h
	}
	sh := func(script string) string {
		out, err := exec.Command("/bin/sh", "-ec", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	early := func(setting string, h nodeport.Host) {
		if err := New(setting, netip.IPv4Unspecified()).SyncEarly(t.Context(), h); err != nil {
			t.Fatalf("%s: %v", setting, err)
		}
	}
	for _, tt := range []struct{ variant, more string }{
		{"iptables", "PROGRAM -N OVN-SVC-REFUSE"}, {"iptables-legacy", "PROGRAM -N OVN-SVC-REFUSE"},
		{"iptables", ""}, // after a move that was not finished
	} {
		variant := tt.variant
		sh(strings.ReplaceAll(`PROGRAM -t nat -N OVN-SVC-WAYS
			PROGRAM -t nat -A OVN-SVC-WAYS -d 192.0.2.5/32 -p tcp -m tcp --dport 6443 -m comment --comment "default/web external IP" -j ACCEPT
			PROGRAM -t nat -N OVN-SVC-OUTPUT
			PROGRAM -t nat -A OVN-SVC-OUTPUT -j OVN-SVC-WAYS
			PROGRAM -t nat -I OUTPUT -j OVN-SVC-OUTPUT
			`+tt.more, "PROGRAM", variant))
		early(config.NFTables, host("192.0.2.5:6443"))
		if got := sh(variant + " -t nat -S OVN-SVC-OUTPUT"); !strings.Contains(got, "-A OVN-SVC-OUTPUT -d 192.0.2.5/32 -p tcp -m tcp --dport 6443 -j RETURN\n-A OVN-SVC-OUTPUT -j OVN-SVC-WAYS") {
			t.Errorf("%s: not spared: %s", variant, got)
		}
		sh(strings.ReplaceAll("PROGRAM -t nat -F; PROGRAM -t nat -X; PROGRAM -F; PROGRAM -X", "PROGRAM", variant))
	}
	early(config.NFTables, host("192.0.2.5:6443"))
	early(config.IPTables, host("192.0.2.6:6443"))
	if got := sh("nft list set ip ovn-k8s svc-servers"); !strings.Contains(got, "192.0.2.6 . tcp . 6443") || strings.Contains(got, "192.0.2.5") {
		t.Errorf("nftables: %s", got)
	}
	sh("nft delete table ip ovn-k8s")
	early(config.IPTables, host("192.0.2.6:6443"))
	if left := tables(t); strings.Contains(left, "ovn-k8s") {
		t.Errorf("a table for nothing: %s", left)
	}
}
