// Package firewalls has only tests: real firewalls start, reload and flush beside the gateway helper's rules, under load.
package firewalls

import (
	"os"
	"strconv"
	"testing"
)

// A firewall is a package of Debian, and what it does to rules.
type firewall struct {
	pkg string // "" if it is on every machine
	// prepare does what docs/gateway-helper.md tells an operator to set.
	prepare string // a script, ":" for nothing
	// harms are scripts that start, reload or flush.
	harms []string
}

var firewalls = map[string]firewall{
	"flushes": {prepare: ":", harms: []string{
		"iptables -F",
		"iptables -F; iptables -t nat -F; iptables -t mangle -F",
		restarts("nftables"), // flushes everything, and reads /etc/nftables.conf
		"nft flush ruleset",
	}},
	"firewalld": {pkg: "firewalld",
		prepare: "systemctl start firewalld; firewall-cmd -q --permanent --zone=trusted --add-interface=k8s-node1; firewall-cmd -q --permanent --add-port=6081/udp; firewall-cmd -q --reload",
		harms:   []string{restarts("firewalld"), "firewall-cmd -q --reload"},
	},
	// docker makes FORWARD drop if it finds a host that does not forward, as at a boot before the helper.
	"docker": {pkg: "docker.io",
		prepare: "systemctl stop ovn-k8s-gateway-helper; echo 0 >/proc/sys/net/ipv4/ip_forward; systemctl start docker; iptables -S FORWARD | grep -q -e '-P FORWARD DROP'; systemctl start ovn-k8s-gateway-helper",
		harms:   []string{restarts("docker")},
	},
	"ufw": {pkg: "ufw",
		prepare: "ufw allow 6081/udp; ufw allow 8081/tcp",
		harms:   []string{"ufw --force enable", "ufw reload", "ufw --force disable"},
	},
}

// restarts is a script that restarts a unit, as often as the test wants.
func restarts(unit string) string {
	return "systemctl -q reset-failed " + unit + " || :; systemctl restart " + unit
}

// allVariable is set if all firewalls are tried: their packages are fetched by make test-firewalls. roundsVariable is the
// number of rounds.
const (
	allVariable    = "OVNK8S_TEST_FIREWALLS"
	roundsVariable = "OVNK8S_TEST_FIREWALLS_ROUNDS"
)

// Issue 16: while another firewall starts, reloads or flushes, no established connection is lost, and new ones work 2 s
// later at the latest. They go to a NodePort from outside, and from the host to NodePorts and ClusterIPs.
func TestBesideFirewalls(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(roundsVariable))
	if err != nil {
		rounds = 2
	}
	for name, f := range firewalls {
		if f.pkg != "" && os.Getenv(allVariable) == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, f.pkg)
			w.settled("")
			w.script("set -e; " + f.prepare)
			w.settled("")
			sessions := w.open()
			for _, harm := range f.harms {
				for range rounds {
					w.script("set -e; " + harm)
					w.settled(harm)
				}
				w.log(harm, rounds)
			}
			for _, s := range sessions {
				s.finish(w)
			}
			w.remove()
		})
	}
}
