package host

import (
	"cmp"
	"os"
	"testing"

	"ovn-k8s/lib/config"
)

// firewallVariable names the variable with the setting firewall of all hosts.
const firewallVariable = "OVNK8S_FIREWALL"

// withoutVariable names the variable that hides the programs of iptables from all hosts, see setup.sh.
const withoutVariable = "OVNK8S_TEST_WITHOUT_IPTABLES"

// WithoutIPTables reports whether hosts have no programs of iptables.
func WithoutIPTables() bool { return os.Getenv(withoutVariable) != "" }

// NeedIPTables skips a test about iptables on hosts without it.
func NeedIPTables(t testing.TB) {
	t.Helper()
	if WithoutIPTables() {
		t.Skip(withoutVariable + " is set")
	}
}

// Firewall is the program of the hosts' rules: all hosts have nft.
func Firewall() string {
	if set := cmp.Or(os.Getenv(firewallVariable), config.AnyFirewall); set != config.AnyFirewall {
		return set
	}
	return config.NFTables
}

// PerFirewall returns the text for the program of the hosts' rules.
func PerFirewall(iptables, nftables string) string {
	if Firewall() == config.NFTables {
		return nftables
	}
	return iptables
}

// RulesScript prints the rules of both programs, as far as they are installed.
const RulesScript = `for i in iptables-save ip6tables-save; do ! command -v $i >/dev/null || $i; done
	for i in ip ip6; do nft -a list table $i ovn-k8s 2>/dev/null || :; done`

// LostRules deletes the rules of the hosts' program, as at a boot.
func LostRules() string {
	return PerFirewall("for i in iptables ip6tables; do for t in filter nat mangle; do $i -t $t -F; $i -t $t -X; done; done",
		"for i in ip ip6; do ! nft list table $i ovn-k8s >/dev/null 2>&1 || nft delete table $i ovn-k8s; done")
}
