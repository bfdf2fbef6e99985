package main

import (
	"strings"
	"testing"
)

// rebooted leaves eth0 a port of breth0 as after a reboot: both have link-local addresses, and from has the addresses
// of the host's configuration.
func (n *node) rebooted(from string) {
	n.t.Helper()
	n.script(`set -e
		for d in eth0 breth0; do
			ip address flush dev $d
			sysctl -qw net.ipv6.conf.$d.disable_ipv6=1 net.ipv6.conf.$d.disable_ipv6=0 net.ipv4.conf.$d.arp_ignore=0
			ip link set $d up
		done
		ip address add 198.18.0.11/24 dev ` + from + `
		ip address add fd00:198:18::b/64 dev ` + from + ` nodad
		ip address add fd00:198:18::c/64 dev breth0 nodad
		ip route add default via 198.18.0.1 dev ` + from + `
		ip -6 route add default via fd00:198:18::1 dev ` + from + `
		until [ "$(ip -6 route show fe80::/64 | wc -l)" = 2 ]; do sleep 0.02; done`)
}

// H5: after a reboot, eth0 and breth0 both have fe80::/64; the route of one was mistaken for the other's.
func TestMovesAfterAReboot(t *testing.T) {
	t.Run("bridges-to-nic", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.does("nics-to-bridge eth0")
		n.rebooted("breth0")
		n.does("bridges-to-nic breth0")
		has(t, n.script("ip route; ip -6 route"), "default via 198.18.0.1 dev eth0", "default via fd00:198:18::1 dev eth0", "fe80::/64 dev eth0")
	})
	t.Run("nics-to-bridge again", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.does("nics-to-bridge eth0")
		n.rebooted("eth0")
		n.does("nics-to-bridge eth0")
		routes := n.script("ip route; ip -6 route")
		has(t, routes, "default via 198.18.0.1 dev breth0", "default via fd00:198:18::1 dev breth0", "fe80::/64 dev breth0")
		if strings.Contains(routes, "dev eth0") {
			t.Errorf("routes of eth0: %s", routes)
		}
		n.does("bridges-to-nic breth0")
		has(t, n.script("ip route; ip -6 route"), "default via 198.18.0.1 dev eth0", "default via fd00:198:18::1 dev eth0")
	})
	t.Run("undone", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.does("nics-to-bridge eth0")
		n.rebooted("eth0")
		before := n.state()
		r := n.does("nics-to-bridge eth0 --confirm-within=1s") // with the kernel's datapath, eth0 gets no answer that --probe could miss
		has(t, r.Out, "breth0 has what eth0 had")
		n.awaitState(before)
	})
}

// H7: an altname refers to the NIC itself.
func TestAltnamesNameTheNIC(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip link property add dev eth0 altname enp0s3 altname enx0a0000000001
		ip rule add pref 50 iif eth0 lookup 77
		ip route add 10.9.0.0/16 via 198.18.0.1 dev eth0 table 77
		sysctl -qw net.ipv4.conf.eth0.rp_filter=2`)
	before := n.state()
	for _, name := range []string{"enp0s3", "enx0a0000000001"} {
		has(t, n.does("nics-to-bridge "+name+" --dry-run").Out, "# eth0\n", "bridge breth0")
		if r := n.does("nics-to-bridge " + name); r.Out != "breth0 has what eth0 had\n" {
			t.Errorf("%+v", r)
		}
		has(t, n.script("ip rule; ip route show table 77; sysctl net.ipv4.conf.breth0.rp_filter net.ipv4.conf.eth0.arp_ignore; ovs-vsctl list-ports breth0"),
			"iif breth0 lookup 77", "via 198.18.0.1 dev breth0", "breth0.rp_filter = 2", "eth0.arp_ignore = 8", "\neth0")
		if r := n.does("bridges-to-nic br" + name); r.Out != "eth0 has what breth0 had\n" {
			t.Errorf("%+v", r)
		}
		n.unchanged("a round trip by altname", before)
	}
}
