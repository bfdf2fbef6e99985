package main

import (
	"strings"
	"testing"
)

// oldNFT is nft of a release that is too old. It stands in for one: no package source of this machine has it.
const oldNFT = "#!/bin/sh\necho 'nftables v0.9.8 (E.D.S.)'\n"

// A local gateway needs a packet filter. Without one, nothing is changed.
func TestALocalGatewayWithoutAPacketFilter(t *testing.T) {
	w := newWorld(t, "node1")
	n := w.nodes[0]
	n.init(masterInitArgs)
	n.write("/usr/local/sbin/nft", oldNFT)
	n.script("chmod +x /usr/local/sbin/nft")
	n.setID("ovn-k8s-firewall", "nftables")
	before, transactions := n.state(), w.transactions()
	n.fails(localGateway, "no packet filter for the rules of this host: nftables does not work here: nft version must be v1.0.1 or later "+
		"(got nftables v0.9.8 (E.D.S.)): install the package nftables (1.0.1 or later), or set external_ids:ovn-k8s-firewall=iptables")
	same(t, "the host", n.state(), before)
	if now := w.transactions(); now != transactions {
		t.Errorf("%d transactions of the Northbound database", now-transactions)
	}
	if r := n.run(masterInitArgs); r.Status != 0 || strings.Contains(r.Err, "no packet filter") {
		t.Errorf("a node with its guards: %+v", r)
	}
	n.script("/usr/sbin/nft flush ruleset")
	if r := n.run(masterInitArgs); r.Status != 0 || strings.Count(r.Err, "no packet filter") != 1 {
		t.Errorf("a node without its guards: %+v", r)
	}
	n.script("rm /usr/local/sbin/nft")
	n.init(localGateway)
}

// A kernel without IPv6 cannot have a local gateway of a dual-stack cluster.
func TestALocalGatewayWithoutIPv6(t *testing.T) {
	w := newWorld(t, "node1")
	n := w.nodes[0]
	const dual = ",fd01::/48 --master-switch-subnet=192.168.1.0/24,fd01:0:0:1::/64"
	n.init(strings.Replace(masterInitArgs, " --master-switch-subnet=192.168.1.0/24", dual, 1))
	n.script("mount -t tmpfs tmpfs /proc/sys/net/ipv6")
	transactions := w.transactions()
	n.fails(strings.Replace(localGateway, "192.168.0.0/16", "192.168.0.0/16,fd01::/48", 1),
		"subnets 192.168.0.0/16,fd01::/48 need IPv6, which this host's kernel does not have: boot it without ipv6.disable=1")
	if now := w.transactions(); now != transactions || strings.Contains(n.script("ovs-vsctl list-br"), "br-local") {
		t.Errorf("%d transactions of the Northbound database, bridges %s", now-transactions, n.script("ovs-vsctl list-br"))
	}
}
