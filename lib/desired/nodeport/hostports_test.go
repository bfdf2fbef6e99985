package nodeport

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/test/hostile"
)

// one is a pod of node1 with a hostPort.
func one(name, ip string, port, target uint16, more ...func(*hostport.Pod)) hostport.Pod {
	p := hostport.Pod{
		Pod:   pod.Pod{Key: pod.Key{Namespace: "default", Name: name}, HostPorts: []pod.HostPort{{Protocol: corev1.ProtocolTCP, Port: port, Target: target}}},
		Addrs: []netip.Addr{addr("10.128.1.3"), addr("fd01::3")},
	}
	if ip != "" {
		p.HostPorts[0].IP = addr(ip)
	}
	for _, m := range more {
		m(&p)
	}
	return p
}

func udp(p *hostport.Pod) { p.HostPorts[0].Protocol = corev1.ProtocolUDP }

// about returns the rules of a table that exist for hostPorts, in order.
func about(h Host, family netip.Addr, pods []hostport.Pod, frontends ...[]service.Frontend) []string {
	without := map[string]bool{}
	for _, c := range chainsOf(h, family, frontends, nil) {
		for _, r := range c.Rules {
			without[c.Table+c.Name+r] = true
		}
	}
	var out []string
	for _, c := range chainsOf(h, family, frontends, pods) {
		for _, r := range c.Rules {
			if !without[c.Table+c.Name+r] {
				out = append(out, strings.TrimPrefix(c.Name, ChainPrefix)+" "+r)
			}
		}
	}
	return out
}

func TestRulesOfHostPorts(t *testing.T) {
	shared := node1
	shared.Shared = "breth0"
	withPods := node1
	withPods.Pods = []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd01::/64")}
	const toPods = "-j DNAT --to-destination 10.128.1.3:8080"
	web := `-p tcp -m tcp --dport 80 -m comment --comment "pod default/web" `
	for _, tt := range []struct {
		name   string
		host   Host
		family netip.Addr
		pod    hostport.Pod
		want   []string
	}{
		{"every address", node1, IPv4, one("web", "", 80, 8080), []string{
			"FORWARD -s 10.128.1.3/32 -i k8s-node1 -p tcp -m tcp --sport 8080 -j ACCEPT",
			"INPUT -d 127.0.0.0/8 -i k8s-node1 -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS " + web + "-m addrtype --src-type LOCAL -j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS " + web + toPods,
			"POSTROUTING -s 10.128.1.3/32 ! -o k8s-node1 -p tcp -m tcp --sport 8080 -j MASQUERADE",
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"IPv6", node1, IPv6, one("web", "", 80, 8080), []string{
			"FORWARD -s fd01::3/128 -i k8s-node1 -p tcp -m tcp --sport 8080 -j ACCEPT",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS " + web + "-m addrtype --src-type LOCAL -j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS " + web + "-j DNAT --to-destination [fd01::3]:8080",
			"POSTROUTING -s fd01::3/128 ! -o k8s-node1 -p tcp -m tcp --sport 8080 -j MASQUERADE",
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"one address", node1, IPv4, one("web", "192.0.2.1", 80, 8080), []string{
			"FORWARD -s 10.128.1.3/32 -i k8s-node1 -p tcp -m tcp --sport 8080 -j ACCEPT",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS -d 192.0.2.1/32 " + web + "-m addrtype --src-type LOCAL -j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS -d 192.0.2.1/32 " + web + toPods,
			"POSTROUTING -s 10.128.1.3/32 ! -o k8s-node1 -p tcp -m tcp --sport 8080 -j MASQUERADE",
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"the management address", withPods, IPv4, one("web", "10.128.1.2", 80, 8080), []string{
			"FORWARD -s 10.128.1.0/24 -i k8s-node1 -o k8s-node1 -j ACCEPT",
			"FORWARD -s 10.128.1.3/32 -i k8s-node1 -p tcp -m tcp --sport 8080 -j ACCEPT",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS -d 10.128.1.2/32 " + web + "-m addrtype --src-type LOCAL -j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS -d 10.128.1.2/32 " + web + toPods,
			"POSTROUTING -s 10.128.1.3/32 ! -o k8s-node1 -p tcp -m tcp --sport 8080 -j MASQUERADE",
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"UDP, but not to tunnels", node1, IPv4, one("web", "", 80, 8080, udp), []string{
			"FORWARD -s 10.128.1.3/32 -i k8s-node1 -p udp -m udp --sport 8080 ! --dport 6081 -j ACCEPT",
			"INPUT -d 127.0.0.0/8 -i k8s-node1 -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS " + strings.ReplaceAll(web, "tcp", "udp") + "-m addrtype --src-type LOCAL -j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS " + strings.ReplaceAll(web, "tcp", "udp") + toPods,
			"POSTROUTING -s 10.128.1.3/32 ! -o k8s-node1 -p udp -m udp --sport 8080 ! --dport 6081 -j MASQUERADE",
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"the loopback address", withPods, IPv4, one("web", "127.0.0.1", 80, 8080), []string{
			"INPUT -d 127.0.0.0/8 -i k8s-node1 -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS -d 127.0.0.1/32 " + web + "-m addrtype --src-type LOCAL -j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS -d 127.0.0.1/32 " + web + toPods,
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"a shared NIC", shared, IPv4, one("web", "192.0.2.1", 80, 8080), []string{
			"STRAY -d 192.0.2.1/32 " + web + "-j DROP",
			"HOSTPORTS -i k8s-node1 -j RETURN",
			"HOSTPORTS -d 192.0.2.1/32 " + web + "-j MARK --set-xmark 0x1000/0x1000",
			"HOSTPORTS -d 192.0.2.1/32 " + web + toPods,
			"WAYS -m addrtype --dst-type LOCAL -j OVN-SVC-HOSTPORTS",
		}},
		{"another family", node1, IPv6, one("web", "0.0.0.0", 80, 8080), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, about(tt.host, tt.family, []hostport.Pod{tt.pod})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Beside a firewall of iptables that drops, the rules in nftables accept what those in iptables do: also connections that a
// pod opens from its hostPort, and those to hostPorts at the management address.
func TestAcceptsAreThoseOfIPTables(t *testing.T) {
	h := node1
	h.Pods = []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd01::/64")}
	shared := h
	shared.Shared = "breth0"
	for _, h := range []Host{h, shared} {
		for _, family := range []netip.Addr{IPv4, IPv6} {
			r := NewRules(h, family, web(), []hostport.Pod{one("web", "", 80, 8080), one("ntp", "", 123, 123, udp)})
			var want []string
			for _, c := range r.Chains(false) {
				if c.Name == chainForward {
					want = slices.DeleteFunc(c.Rules, func(r string) bool { return !strings.HasSuffix(r, " -j ACCEPT") })
				}
			}
			got := r.Accepts()
			if diff := cmp.Diff([]Chain{{Table: "filter", Name: chainForward, From: "FORWARD", Rules: want, IfDrops: true}}, got); diff != "" {
				t.Errorf("%v, shared %q (-want +got):\n%s", family, h.Shared, diff)
			}
		}
	}
}

// The first matching rule decides: the older pod's. A Service's NodePort takes precedence over
// all pods.
func TestTheFirstKeepsAHostPort(t *testing.T) {
	young := one("a-young", "", 80, 8080, func(p *hostport.Pod) { p.Created = 2 })
	old := one("old", "192.0.2.1", 80, 9090, func(p *hostport.Pod) { p.Created = 1 })
	var targets []string
	for _, r := range about(node1, IPv4, []hostport.Pod{young, old}) {
		if _, to, found := strings.Cut(r, "--to-destination "); found {
			targets = append(targets, to)
		}
	}
	if diff := cmp.Diff([]string{"10.128.1.3:9090", "10.128.1.3:8080"}, targets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rival := one("rival", "", 30080, 8080)
	if got := about(node1, IPv4, []hostport.Pod{rival}, web()...); got != nil {
		t.Errorf("the pod has a NodePort: %q", got)
	}
	if Loopback(web(), []hostport.Pod{rival}) || !Loopback(nil, []hostport.Pod{rival}) || Loopback(nil, []hostport.Pod{old}) {
		t.Error("packets for 127.0.0.1 are not let in where they must be, or are where not")
	}
}

func TestStaleConnectionsToHostPorts(t *testing.T) {
	host := node1
	host.Addrs = append(slices.Clone(host.Addrs), addr("127.0.0.1"))
	host.Pods = []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")}
	stale := NewTracked(host, IPv4, nil, []hostport.Pod{one("dns", "", 53, 5353, udp)}).Stale
	for _, tt := range []struct {
		to, answers string
		want        bool
	}{
		{"192.0.2.1:53", "10.128.1.3:5353", false},
		{"127.0.0.1:53", "10.128.1.3:5353", false},
		{"192.0.2.1:53", "10.128.1.9:5353", true}, // another pod before
		{"192.0.2.1:53", "192.0.2.1:53", true},    // no pod before
		{"192.0.2.1:54", "10.128.1.9:5353", true}, // a deleted hostPort
		{"192.0.2.1:54", "192.0.2.1:54", false},
		{"192.0.2.1:54", "203.0.113.9:54", false}, // the work of another program
		{"10.128.1.9:5353", "10.128.1.9:5353", false},
	} {
		if got := stale(netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.answers)); got != tt.want {
			t.Errorf("to %s, answered by %s: %v", tt.to, tt.answers, got)
		}
	}
}

// L3: the time for the table of nftables grows with the number of hostPorts, not with its square: that took seconds at each
// sync with 40 pods of 1 000 hostPorts.
func TestManyHostPortsInATable(t *testing.T) {
	h := Host{Node: "node1", Management: "k8s-node1", Pods: []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")}}
	took := func(n int) time.Duration {
		p := one("web", "", 1, 1)
		p.HostPorts = nil
		for i := range n {
			p.HostPorts = append(p.HostPorts, pod.HostPort{Protocol: corev1.ProtocolTCP, Port: uint16(1 + i), Target: uint16(1 + i)})
		}
		least := time.Hour
		for range 3 {
			least = min(least, hostile.CPUTime(func() { NewRules(h, IPv4, nil, []hostport.Pod{p}).Table() }))
		}
		return least
	}
	if few, many := took(4000), took(32_000); many > 24*few {
		t.Errorf("4000 hostPorts take %v, 32 000 take %v", few, many)
	}
}
