package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		config.NFTables: func() string { return w.script("nft list tables | grep 'ovn-k8s$' || :") },
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
	for range 10 {
		lines := session.Typed().Lines
		w.script("nft flush ruleset")
		w.within(soon, "the session goes on after a flush", func() bool { return session.Typed().Lines > lines+10 })
	}
	if got := session.Typed(); got.Resets > 0 {
		t.Errorf("the session, after flushes: %+v", got)
	}
	w.within(soon, "back after a flush", func() bool { return strings.Contains(w.script(host.RulesScript), "30082") })
	w.answers("after a flush", w.fabric.Netns(), "tcp", to, "cluster", management[0])
}

// Rules of iptables beside rules that nft wrote to its table: in a chain without ours they are kept, and written once. In
// another one, one line says what to do, and again nothing is written.
func TestRulesBesideOnesOfNFT(t *testing.T) {
	host.NeedIPTables(t)
	w := newWorld(t)
	w.script(`set -e
		ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=iptables
		iptables -N OTHER
		nft add rule ip filter OTHER ct state established accept`)
	w.overlay()
	helper := w.start()
	lines := func(of string) int { return strings.Count(helper.Output(), of) }
	w.eventually("rules", func() bool { return strings.Contains(w.script("iptables -S FORWARD"), "OVN-SVC") })
	w.eventually("all are done", func() bool { return !strings.Contains(w.appctl("reconcile/show"), "fails") })
	time.Sleep(time.Second) // what the helper follows has come
	before := lines("\n")
	time.Sleep(4 * time.Second)
	if got := lines("\n") - before; got > 0 {
		t.Errorf("%d lines", got)
	}
	w.script("nft add rule ip filter FORWARD ct state established accept")
	w.eventually("the line", func() bool { return lines("external_ids:ovn-k8s-firewall=nftables") > 0 })
	before = lines("\n")
	time.Sleep(4 * time.Second)
	if got := lines("\n") - before; got > 0 {
		t.Errorf("%d lines after the one", got)
	}
	w.script("nft flush chain ip filter FORWARD")
	w.eventually("rules again", func() bool { return strings.Contains(w.script("iptables -S FORWARD"), "OVN-SVC") })
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

// Beside such a firewall, with either program of our rules, a pod opens connections from the port of its hostPort, as NTP does,
// and pods reach hostPorts at the management address of their own node: OVN sends both to the host.
func TestHostPortsPassAFirewallThatDrops(t *testing.T) {
	host.NeedIPTables(t)
	w := newWorld(t)
	w.script("iptables -P FORWARD DROP")
	w.overlay()
	w.hostPorts("ntp", podA[0], corev1.ContainerPort{HostPort: 123, ContainerPort: 8123, Protocol: corev1.ProtocolUDP}, corev1.ContainerPort{HostPort: 81, ContainerPort: 8080})
	w.script(`set -e
		sysctl -qw net.ipv4.conf.all.arp_ignore=1 # only the management port has its address
		ip netns add client
		ip link add client0 type veth peer name eth0 netns client
		ip link set client0 up
		ip -n client link set eth0 up
		ip -n client addr add 10.128.1.5/24 dev eth0
		ip -n client neigh add 10.128.1.3 lladdr $(cat /sys/class/net/k8s-node1/address) dev eth0
		ip netns exec client ethtool -K eth0 tx off >/dev/null
		ovs-vsctl add-port br-int client0`)
	server, err := probe.Serve(w.fabric.Netns(), "outside", 9123)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w.start()
	w.eventually("from the port of a hostPort to outside", func() bool {
		answer := make([]byte, 512)
		n := 0
		err := probe.In(w.Path("/run/netns/pods"), func() error {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(podA[0], 8123)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(host.FabricIPv4(), 9123)))
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte("who?\n"))
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, err = c.Read(answer)
			return err
		})
		name, from, _ := probe.Answer(strings.TrimSpace(string(answer[:n])))
		return err == nil && name == "outside" && from.Addr() == w.IPv4()
	})
	w.answers("pod to the management address", w.Path("/run/netns/client"), "tcp", netip.AddrPortFrom(podA[0], 8080), "pod", netip.MustParseAddr("10.128.1.5"))
}

// hostPorts makes a pod of the host with hostPorts.
func (w api) hostPorts(name string, at netip.Addr, ports ...corev1.ContainerPort) {
	w.Helper()
	no := false
	api := cluster.Client().CoreV1()
	_, err := api.ServiceAccounts("default").Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	p, err := api.Pods("default").Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: "node1", AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: name, Image: name, Ports: ports}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		now := int64(0)
		_ = api.Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	p.Status.PodIP, p.Status.PodIPs = at.String(), []corev1.PodIP{{IP: at.String()}}
	if _, err := api.Pods("default").UpdateStatus(w.ctx, p, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// killing are programs that kill the helper, which runs them, when a number of calls is reached. With an odd number they
// do their work before.
const killing = `for tool in nft iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
		cat >/usr/local/sbin/$tool <<'END'
#!/bin/sh
exec 9>/run/kill.lock
flock 9
left=$(cat /run/kill 2>/dev/null)
if [ -n "$left" ]; then
	if [ "$left" -gt 1 ]; then
		echo $((left - 2)) >/run/kill
	else
		rm /run/kill
		if [ "$left" = 1 ]; then /usr/sbin/${0##*/} "$@" 9>&-; fi
		kill -9 $PPID
		exit 1
	fi
fi
exec 9>&-
exec /usr/sbin/${0##*/} "$@"
END
		chmod +x /usr/local/sbin/$tool
	done`

// Issue 16: a helper that is killed while its rules move to the other program leaves no connection broken, and the next
// one finishes the move and leaves nothing.
func TestAHelperIsKilledInAMove(t *testing.T) {
	host.NeedIPTables(t)
	w := newWorld(t)
	w.script("iptables -P FORWARD DROP; " + killing)
	web := w.service("web", nil)
	w.overlay(web)
	w.endpoints(web, 8080, "10.128.1.3@node1")
	p := w.start()
	to := netip.AddrPortFrom(w.IPv4(), 30082)
	w.answers("outside to NodePort", w.fabric.Netns(), "tcp", to, "cluster", management[0])
	session, err := probe.OpenSession(w.ctx, w.fabric.Netns(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	other := map[string]string{config.IPTables: config.NFTables, config.NFTables: config.IPTables}
	moved := func(use string) bool {
		nft := w.script("/usr/sbin/nft list tables | grep 'ovn-k8s$' || :") != ""
		iptables := w.script("/usr/sbin/iptables-save | grep OVN-SVC-WAYS || :") != ""
		return nft == (use == config.NFTables) && iptables == (use == config.IPTables)
	}
	ended := func() bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	}
	use, kills := host.Firewall(), 0
	for _, calls := range []int{0, 1, 2, 3, 5, 7, 8, 11, 14, 17, 21, 26, 33, 40} {
		use = other[use]
		w.script(fmt.Sprintf("echo %d >/run/kill; ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=%s", calls, use))
		w.eventually("killed, or moved", func() bool { return ended() || moved(use) })
		w.script("rm -f /run/kill")
		if ended() {
			kills++
			p = w.start()
		}
		w.eventually(fmt.Sprintf("rules in %s only, killed after %d calls", use, calls), func() bool {
			return moved(use) && w.refuses(w.fabric.Netns(), to.String()) == nil
		})
		lines := session.Typed().Lines
		w.eventually("the session goes on", func() bool { return session.Typed().Lines > lines })
	}
	if got := session.Typed(); got.Resets > 0 {
		t.Errorf("the session: %+v", got)
	}
	if kills < 5 {
		t.Errorf("killed %d times only", kills)
	}
}
