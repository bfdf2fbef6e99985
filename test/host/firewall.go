package host

import (
	"cmp"
	"os"

	"ovn-k8s/lib/config"
)

// firewallVariable names the variable with the setting firewall of all hosts.
const firewallVariable = "OVNK8S_FIREWALL"

// Firewall is the program of the hosts' rules.
func Firewall() string { return cmp.Or(os.Getenv(firewallVariable), config.IPTables) }

// PerFirewall returns the text for the program of the hosts' rules.
func PerFirewall(iptables, nftables string) string {
	if Firewall() == config.NFTables {
		return nftables
	}
	return iptables
}

// RulesScript prints the rules of both programs.
const RulesScript = `iptables-save; ip6tables-save; nft -a list table ip ovn-k8s 2>/dev/null || :; nft -a list table ip6 ovn-k8s 2>/dev/null || :`
