package nodeport

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// Packets from a router outside to pods go to the gateway router, whether Services are known
// or not.
func TestFlowsOfPods(t *testing.T) {
	b := Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Addrs: node1.Addrs[:1]}
	without := BaseFlows(b)
	b.Pods = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd01::/48")}
	var got []string
	for _, f := range BaseFlows(b) {
		if !slices.Contains(without, f) {
			got = append(got, f.String())
		}
	}
	if diff := cmp.Diff([]string{
		"cookie=0x6b38736777,table=0,priority=60,ip,in_port=1,dl_dst=0a:00:00:00:00:01,nw_dst=10.128.0.0/14,actions=output:2",
		"cookie=0x6b38736777,table=0,priority=60,ipv6,in_port=1,dl_dst=0a:00:00:00:00:01,ipv6_dst=fd01::/48,actions=output:2",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlowsOfFrontends(t *testing.T) {
	b := Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Addrs: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.9"), addr("2001:db8::1")}}
	base := len(BaseFlows(b))
	of := func(frontends []service.Frontend, b Bridge) []string {
		var out []string
		for _, f := range Flows(b, frontends, nil)[base:] {
			out = append(out, f.Match+" -> "+f.Actions)
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{
		"tcp,in_port=1,nw_dst=192.0.2.1,tp_dst=30080 -> output:2",
		"tcp,in_port=1,nw_dst=192.0.2.9,tp_dst=30080 -> output:2",
		"tcp,in_port=1,nw_dst=203.0.113.7,tp_dst=80 -> output:2",
		"tcp,in_port=1,nw_dst=203.0.113.8,tp_dst=80 -> output:2",
	}, of(web(), b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	proxy := func(s *service.Resolved) { s.Ingress[0].Proxy = true }
	b.Addrs = nil
	if diff := cmp.Diff([]string{
		"tcp,in_port=1,nw_dst=203.0.113.7,tp_dst=80 -> output:2",
		"tcp,in_port=1,tp_dst=30080 -> output:2",
	}, of(web(proxy), b)); diff != "" {
		t.Errorf("without addresses, and behind a load balancer (-want +got):\n%s", diff)
	}
	lost := func(s *service.Resolved) {
		s.Lost = service.LostIn(map[service.Claim]service.Key{{Protocol: corev1.ProtocolTCP, Port: 30080}: {Namespace: "a", Name: "b"}})
	}
	if got := of(web(lost), b); slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "30080") }) {
		t.Errorf("another Service has the NodePort: %q", got)
	}
}

func TestStaleConnections(t *testing.T) {
	udp := func(s *service.Resolved) { s.Ports[0].Protocol = corev1.ProtocolUDP }
	if MayBeStale(web(), []string{"nat: -A OVN-SVC-WAYS"}) || !MayBeStale(web(udp), nil) || !MayBeStale(nil, []string{"nat: -X OVN-SVC-HOSTPORTS"}) {
		t.Error("it is not told when there may be stale connections")
	}
	stale := Stale(node1, IPv4, web(udp), nil)
	for _, tt := range []struct {
		to, answers string
		want        bool
	}{
		{"192.0.2.1:30080", "172.30.0.10:80", false},
		{"192.0.2.1:30080", "10.128.1.3:8080", false},
		{"192.0.2.1:30080", "10.128.1.9:8080", true},
		{"192.0.2.1:30080", "192.0.2.1:30080", true},
		{"203.0.113.7:80", "10.128.1.9:8080", true},
		{"192.0.2.1:53", "10.128.1.9:53", false},
	} {
		if got := stale(netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.answers)); got != tt.want {
			t.Errorf("to %s, answered by %s: %v", tt.to, tt.answers, got)
		}
	}
}

func TestStaleConnectionsInside(t *testing.T) {
	udp := func(s *service.Resolved) { s.Ports[0].Protocol = corev1.ProtocolUDP }
	if StaleInside(web()) != nil {
		t.Error("there is no way in for UDP")
	}
	stale := StaleInside(web(udp))
	for _, tt := range []struct {
		to, answers string
		want        bool
	}{
		{"192.0.2.7:30080", "10.128.1.3:8080", false},
		{"192.0.2.7:30080", "10.128.1.9:8080", true},
		{"[2001:db8::7]:30080", "[fd00::9]:8080", false}, // a Service of IPv4
		{"203.0.113.7:80", "10.128.1.9:8080", true},
		{"203.0.113.7:30080", "10.128.1.9:8080", true}, // an external address may be a node's
		{"172.30.0.10:80", "10.128.1.9:8080", true},
		{"172.30.0.10:80", "10.128.2.3:8080", false},
		{"192.0.2.7:53", "10.128.1.9:53", false},
	} {
		if got := stale(netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.answers)); got != tt.want {
			t.Errorf("to %s, answered by %s: %v", tt.to, tt.answers, got)
		}
	}
}
