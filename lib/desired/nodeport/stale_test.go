package nodeport

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

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
