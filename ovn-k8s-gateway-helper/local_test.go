package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
)

// localGateway makes the same in Open vSwitch as gateway-init --local.
const localGateway = `set -e
	ovs-vsctl add-br br-local -- set Bridge br-local datapath_type=$OVNK8S_TEST_DATAPATH \
		-- add-port br-local br-nexthop -- set Interface br-nexthop type=internal mac='"0a:58:a9:fe:21:01"' \
		-- add-port br-local k8s-patch-br-local-br-int -- set Interface k8s-patch-br-local-br-int type=patch options:peer=k8s-patch-br-int-br-local external_ids:ovn-k8s-gateway=node1 \
		-- add-port br-int k8s-patch-br-int-br-local -- set Interface k8s-patch-br-int-br-local type=patch options:peer=k8s-patch-br-local-br-int external_ids:ovn-k8s-gateway=node1 \
		external_ids:ovn-k8s-cluster-subnets='"10.128.0.0/14,fd01::/48"' external_ids:ovn-k8s-gateway-ips='"169.254.33.2/24,fd99:33::2/64"'`

// soon is shorter than the interval of the resync, which would hide a missed event.
const soon = 30 * time.Second

func (w *world) within(limit time.Duration, what string, cond func() bool) {
	w.Helper()
	if took := w.eventually(what, cond); took > limit {
		w.Errorf("%s: only after %v", what, took)
	}
}

// H8: a local gateway is kept: rules, routing, addresses and sysctls.
func TestALocalGatewayIsKept(t *testing.T) {
	w := newWorld(t)
	w.script(localGateway)
	w.start()
	state := func() string {
		return w.script(`{ ` + host.RulesScript + `; } | grep -e OVN-K8S-GATEWAY -e gw- -e fd99:33::2 -e 169.254.33.2 | sed "s/# handle.*//"; ip rule; ip -6 rule; ip route show table 1646; ip -6 route show table 1646
			ip -br address show br-nexthop; sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.br-nexthop.rp_filter || true`)
	}
	whole := func() bool {
		text := state()
		for _, want := range []string{
			host.PerFirewall("-s 169.254.33.2/32 -i br-nexthop -j ACCEPT", "saddr 169.254.33.2 masquerade"), host.PerFirewall("-s fd99:33::2/128 -j MASQUERADE", "saddr fd99:33::2 masquerade"),
			host.PerFirewall("-A FORWARD -j OVN-K8S-GATEWAY-FORWARD", "chain gw-prerouting"),
			"to 10.128.0.0/14 fwmark 0x800/0x800 lookup 1646", "to fd01::/48 fwmark 0x800/0x800 lookup 1646", "default via 169.254.33.2 dev br-nexthop", "default via fd99:33::2 dev br-nexthop",
			"169.254.33.1/24 fd99:33::1/64", "ip_forward = 1", "all.forwarding = 1", "rp_filter = 2",
		} {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return true
	}
	w.eventually("the host's end", whole)
	before := state()
	for what, harm := range map[string]string{
		"iptables -F":           "for t in iptables ip6tables; do ! command -v $t >/dev/null || for i in filter mangle nat; do $t -t $i -F; done; done",
		"nft flush ruleset":     "nft flush ruleset",
		"no routing rule":       "ip rule del pref 1647; ip -6 rule del pref 1647",
		"no forwarding":         "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0",
		"a strict reverse path": "sysctl -qw net.ipv4.conf.br-nexthop.rp_filter=1",
		"no address":            "ip address flush dev br-nexthop scope global",
		"a new network device":  "ovs-vsctl del-port br-nexthop -- add-port br-local br-nexthop -- set Interface br-nexthop type=internal mac='\"0a:58:a9:fe:21:01\"'",
	} {
		w.script(harm)
		w.within(soon, what, whole)
	}
	if now := state(); now != before {
		t.Errorf("not as before:\n%s\nbut\n%s", before, now)
	}
	// gateway-remove and the helper do not undo each other's work.
	w.script("ovs-vsctl del-br br-local -- del-port k8s-patch-br-int-br-local")
	w.within(soon, "nothing is left", func() bool {
		text := state()
		return !strings.Contains(text, "OVN-K8S-GATEWAY") && !strings.Contains(text, "gw-") && !strings.Contains(text, "1646")
	})
}

// The kernel's datapath keeps the marks of packets that it puts into tunnels, and the tunnel packets pass the rules for
// marks, too: they keep their source, which other hosts know the tunnel by. A Service with the port of tunnels works
// nevertheless: its packets leave by the management port. Packets to a local gateway have no mark left. Packets of
// wg-quick have a mark with the same bit, and go by the host's own routes.
func TestTunnelPacketsKeepTheirSource(t *testing.T) {
	w := newWorld(t)
	w.script(localGateway + `
		ip address add 198.18.0.99/24 dev eth0
		ip neighbour replace 169.254.33.2 lladdr 0a:58:a9:fe:21:02 dev br-nexthop
		ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip address add 10.128.1.2/24 dev k8s-node1; ip link set k8s-node1 up
		ip neighbour replace 10.128.1.1 lladdr 0a:58:0a:80:01:01 dev k8s-node1; ip route add 192.0.2.0/24 via 10.128.1.1`)
	w.start()
	w.eventually("the rules", func() bool {
		text := w.script(host.RulesScript)
		return strings.Contains(text, host.PerFirewall("--dport 6081 -j RETURN", "udp dport 6081 return")) &&
			strings.Contains(text, host.PerFirewall("-A OVN-K8S-GATEWAY-POSTROUTING", "chain gw-routed"))
	})
	second := netip.MustParseAddr("198.18.0.99")
	for port, want := range map[int]string{6081: second.String() + ":4000", 6082: w.IPv4().String() + ":"} {
		listener := receive(w, port)
		defer listener.Close()
		w.eventually(fmt.Sprintf("a packet to port %d from %s", port, want), func() bool {
			send(w, 0x1000, netip.AddrPortFrom(second, 4000), netip.AddrPortFrom(host.FabricIPv4(), uint16(port)))
			return strings.HasPrefix(from(listener), want)
		})
	}
	wireguard := receive(w, 51820)
	defer wireguard.Close()
	w.eventually("the rule for pods", func() bool {
		return strings.Contains(w.script("ip rule"), "fwmark 0x800/0x800 lookup 1646")
	})
	w.eventually("a packet of WireGuard", func() bool {
		send(w, 51820, netip.AddrPortFrom(second, 4000), netip.AddrPortFrom(host.FabricIPv4(), 51820))
		return strings.HasPrefix(from(wireguard), second.String())
	})
	management, err := probe.Listen(w.Netns(), "k8s-node1")
	if err != nil {
		t.Fatal(err)
	}
	defer management.Close()
	w.eventually("a packet to a Service with the port of tunnels", func() bool {
		send(w, 0x1000, netip.AddrPortFrom(second, 4000), netip.MustParseAddrPort("192.0.2.1:6081"))
		return len(management.Saw([]byte("<tunnel>"))) > 0
	})
	for _, frame := range management.Saw([]byte("<tunnel>")) {
		if source := frame[26:30]; !bytes.Equal(source, netip.MustParseAddr("10.128.1.2").AsSlice()) {
			t.Errorf("a packet to a Service with the port of tunnels has the source %v", source)
		}
	}
	w.script("nft 'table ip lost { chain out { type filter hook postrouting priority 200; oifname \"br-nexthop\" meta mark & 0x800 == 0x800 counter; }; }'")
	tap, err := probe.Listen(w.Netns(), "br-nexthop")
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	w.eventually("a packet to the local gateway", func() bool {
		send(w, 0x800, netip.AddrPortFrom(second, 4000), netip.MustParseAddrPort("10.128.2.3:4001"))
		return len(tap.Saw([]byte("<tunnel>"))) > 0
	})
	if text := w.script("nft list table ip lost"); !strings.Contains(text, "packets 0 ") {
		t.Errorf("packets to the local gateway keep their mark: %s", text)
	}
}

// receive receives UDP at a port outside w.
func receive(w *world, port int) (l *net.UDPConn) {
	w.Helper()
	if err := probe.In(w.fabric.Netns(), func() (err error) {
		l, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	}); err != nil {
		w.Fatal(err)
	}
	return l
}

// from returns the sender of the next datagram, or why there is none for a moment.
func from(l *net.UDPConn) string {
	if err := l.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err.Error()
	}
	_, sender, err := l.ReadFromUDPAddrPort(make([]byte, 100))
	if err != nil {
		return err.Error()
	}
	return sender.String()
}

// send sends a datagram of w with a mark.
func send(w *world, mark int, source, to netip.AddrPort) {
	w.Helper()
	dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(source), Control: func(_, _ string, c syscall.RawConn) (err error) {
		if controlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
	if err := probe.In(w.Netns(), func() error {
		c, err := dialer.DialContext(context.Background(), "udp4", to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("<tunnel>"))
		return err
	}); err != nil {
		w.Fatal(err)
	}
}

// H9, S8: a node forwards packets, keeps router advertisements, and says so.
func TestANodeForwards(t *testing.T) {
	w := newWorld(t)
	w.script(`ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip address add 10.128.1.2/24 dev k8s-node1; ip address add fd01:0:0:1::2/64 dev k8s-node1 nodad; ip link set k8s-node1 up
		sysctl -qw net.ipv6.conf.k8s-node1.accept_ra=0`)
	if got := w.script("sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv6.conf.eth0.accept_ra"); got != "0\n0\n1" {
		t.Fatalf("a fresh host: %q", got)
	}
	p := w.launchBare(w.args("--pidfile", "-vconsole:info")...)
	w.eventually("forwarding", func() bool {
		return w.script("sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding") == "1\n1"
	})
	// An interface that comes later accepts router advertisements, too.
	w.script("ip link add late type veth")
	if got := w.script("sysctl -n net.ipv6.conf.eth0.accept_ra net.ipv6.conf.late.accept_ra net.ipv6.conf.k8s-node1.accept_ra"); got != "2\n2\n0" {
		t.Errorf("accept_ra: %q", got)
	}
	w.eventually("a line of the log", func() bool { return strings.Contains(p.Output(), "set sysctl net.ipv4.ip_forward to 1") })
	p.Stop()
	p = w.launchBare(w.args("--pidfile", "-vconsole:info")...)
	w.eventually("the helper answers", func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   true") })
	if strings.Contains(p.Output(), "sysctl") {
		t.Errorf("a restart changes something:\n%s", p.Output())
	}
}

// Packets from a pod's address are dropped before the host forwards anything, even without known objects: OVN lets
// the packets in as soon as a pod has a hostPort.
func TestNobodyIsAPodBeforeObjectsAreKnown(t *testing.T) {
	w := newWorld(t)
	w.overlay()
	w.unplug()
	w.launchBare(w.args("--pidfile")...)
	w.eventually("forwarding", func() bool {
		return w.script("sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding") == "1\n1"
	})
	if got := w.appctl("reconcile/show"); !strings.Contains(got, "services known   false") {
		t.Fatalf("objects are known:\n%s", got)
	}
	for _, subnet := range []string{"10.128.1.0/24", "fd01::/64"} {
		rules := w.script(host.RulesScript)
		for _, want := range []string{
			host.PerFirewall("-A FORWARD -j OVN-SVC-CLAIMED", "hook forward priority mangle"),
			host.PerFirewall("-A OVN-SVC-CLAIMED -s "+subnet+" ! -i k8s-node1 -o k8s-node1 -j DROP", "saddr "+subnet+` iifname != "k8s-node1" oifname "k8s-node1" drop`),
		} {
			if !strings.Contains(rules, want) {
				t.Errorf("no rule %s:\n%s", want, rules)
			}
		}
	}
}
