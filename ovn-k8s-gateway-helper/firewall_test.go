package main

import (
	"net/netip"
	"strings"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
)

// Issue 16: while the rules move to the other program and back, sessions go on and new connections succeed; nothing is
// left in the former program. A flush of everything is repaired.
func TestRulesMove(t *testing.T) {
	host.NeedIPTables(t)
	w := newWorld(t)
	web := w.service("web", nil)
	w.overlay(web)
	w.endpoints(web, 8080, "10.128.1.3@node1")
	w.start()
	to := netip.AddrPortFrom(w.IPv4(), 30082)
	w.answers("outside to NodePort", w.fabric.Netns(), "tcp", to, "cluster", management[0])
	session, err := probe.OpenSession(w.ctx, w.fabric.Netns(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	in := map[string]func() string{
		config.IPTables: func() string { return w.script("iptables-save | grep OVN-SVC || :") },
		config.NFTables: func() string { return w.script("nft list tables | grep ovn-k8s || :") },
	}
	other := map[string]string{config.IPTables: config.NFTables, config.NFTables: config.IPTables}
	use := host.Firewall()
	for range 4 {
		use = other[use]
		w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=" + use)
		w.eventually("rules in "+use+" only", func() bool {
			if err := w.refuses(w.fabric.Netns(), to.String()); err != nil {
				t.Errorf("a new connection: %v", err)
			}
			return in[use]() != "" && in[other[use]]() == ""
		})
		lines := session.Typed().Lines
		w.eventually("the session goes on", func() bool { return session.Typed().Lines > lines })
	}
	if got := session.Typed(); got.Resets > 0 {
		t.Errorf("the session: %+v", got)
	}
	w.script("nft flush ruleset")
	w.within(soon, "back after a flush", func() bool { return strings.Contains(w.script(host.RulesScript), "30082") })
	w.answers("after a flush", w.fabric.Netns(), "tcp", to, "cluster", management[0])
}

// Issue 16: beside a firewall of iptables that drops forwarded packets, as docker's and ufw's, NodePorts are answered, with
// either program of our rules; a flush of it is repaired. With nftables, nothing of ours is left in iptables once that
// firewall is open.
func TestServicesPassAFirewallThatDrops(t *testing.T) {
	host.NeedIPTables(t)
	w := newWorld(t)
	w.script("iptables -P FORWARD DROP")
	web := w.service("web", nil)
	w.overlay(web)
	w.endpoints(web, 8080, "10.128.1.3@node1")
	w.start()
	to := netip.AddrPortFrom(w.IPv4(), 30082)
	accepted := func() bool {
		return strings.Contains(w.script("iptables -S FORWARD; iptables -S OVN-SVC-FORWARD 2>/dev/null || :"), "-A FORWARD -j OVN-SVC-FORWARD\n") && w.refuses(w.fabric.Netns(), to.String()) == nil
	}
	w.eventually("accepted from the start", accepted)
	for _, harm := range []string{"iptables -F", "iptables -F; iptables -X", "nft flush ruleset; iptables -P FORWARD DROP"} {
		w.script(harm)
		w.within(soon, "accepted after "+harm, accepted)
		w.answers("outside to NodePort", w.fabric.Netns(), "tcp", to, "cluster", management[0])
	}
	w.script("iptables -P FORWARD ACCEPT")
	if host.Firewall() == config.NFTables {
		w.within(soon, "nothing of ours in iptables", func() bool { return !strings.Contains(w.script("iptables-save"), "OVN-") })
	}
	w.answers("outside to NodePort", w.fabric.Netns(), "tcp", to, "cluster", management[0])
}
