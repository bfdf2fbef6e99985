package main

import (
	"fmt"
	"strings"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/test/host"
)

// A NIC's configuration saved by an earlier release is understood, IPv6 stays off if it was, and routes with
// several next hops come back.
func TestANICGetsBackWhatAnEarlierReleaseNoted(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	m.init(physicalArgs)
	m.script(`ovs-vsctl set Interface eth1 'external_ids:ovn-k8s-former="{\"addresses\":[\"10.0.0.5/24\",\"fd10::5/64\"]}"'`)
	if r := m.run("gateway-remove --node-name=Gw1 --dry-run"); !strings.Contains(r.Out, "add address 10.0.0.5/24 to eth1\nadd address fd10::5/64 to eth1\n") {
		t.Errorf("%+v", r)
	}
	if got := m.run("gateway-remove --node-name=Gw1"); got != (host.Result{Out: "Gateway Gw1 removed.\n"}) {
		t.Errorf("%+v", got)
	}
	for _, address := range []string{"10.0.0.5/24", "fd10::5/64"} {
		if got := m.script("ip -br address show dev eth1"); !strings.Contains(got, address) {
			t.Errorf("%s is not back: %s", address, got)
		}
	}

	m.script("sysctl -qw net.ipv6.conf.eth1.disable_ipv6=1; ovs-vsctl --if-exists del-br br-int")
	m.init(masterInitArgs)
	m.script(fmt.Sprintf("ip route add 172.30.0.0/16 nexthop via 10.0.0.1 dev eth1 nexthop via %v dev breth0; ip route add 172.31.0.0/16 nexthop via 10.0.0.1 dev eth1 nexthop via 10.0.0.2 dev eth1", m.Gateways()[0]))
	before := m.host()
	m.init(physicalArgs)
	if got := m.run("gateway-remove --node-name=Gw1"); got.Status != 0 {
		t.Errorf("%+v", got)
	}
	same(t, "host", m.host(), before)
	same(t, "disable_ipv6", m.script("cat /proc/sys/net/ipv6/conf/eth1/disable_ipv6"), "1")
}

// Rules impossible to remove are an error, and go with the next run. Those of nftables go without a program.
func TestRulesThatCannotBeRemovedAreAnError(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	before := m.host()
	m.init(localArgs)
	breaks := host.PerFirewall("iptables-restore", "nft")
	m.script(`printf '#!/bin/sh\ncase $* in *list*|*check*|--version) exec /usr/sbin/nft "$@"; esac\necho no >&2\nexit 4\n' >/usr/local/sbin/` + breaks + `; chmod +x /usr/local/sbin/` + breaks)
	r := m.run("gateway-remove --node-name=gw3")
	if host.Firewall() == config.NFTables && r.Status != 0 || host.Firewall() == config.IPTables && (r.Status != 1 || !strings.Contains(r.Err, "iptables-restore: exit status 4: no") || strings.Count(r.Err, "\n") != 1) {
		t.Errorf("%+v", r)
	}
	m.script("rm /usr/local/sbin/" + breaks)
	if r := m.run("gateway-remove --node-name=gw3"); r.Status != 0 {
		t.Errorf("%+v", r)
	}
	same(t, "host", m.host(), before)
}

// On a host without IPv6 in its kernel, everything works for a cluster without IPv6.
func TestWithoutIPv6(t *testing.T) {
	w := newWorld(t, "master", "node2")
	w.nodes[0].init(masterInitArgs)
	n := w.nodes[1]
	n.setID("system-id", "chassis-2")
	n.script(`mount -t tmpfs tmpfs /proc/sys/net/ipv6
		for tool in ip6tables ip6tables-save ip6tables-restore; do
			printf '#!/bin/sh\necho Address family not supported by protocol >&2\nexit 3\n' >/usr/local/sbin/$tool; chmod +x /usr/local/sbin/$tool
		done`)
	n.init(minionInitArgs)
	n.init(strings.Replace(localArgs, "gw3", "gw2", 1))
	n.init(n.bridge())
	if r := n.run("gateway-remove --node-name=gw2"); r.Status != 0 || r.Err != "" {
		t.Errorf("%+v", r)
	}
	n.fails("minion-init --cluster-ip-subnet=192.168.0.0/16,fd01::/48 --minion-switch-subnet=192.168.9.0/24,fd01:0:0:9::/64 --node-name=other",
		"need IPv6, which this host's kernel does not have: boot it without ipv6.disable=1")
}
