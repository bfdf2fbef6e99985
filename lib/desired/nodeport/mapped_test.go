package nodeport

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// reporting returns a host whose Node has addresses of both types.
func reporting(external []string, internal ...string) Host {
	h := node1
	for _, a := range external {
		h.Reported = append(h.Reported, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
	}
	for _, a := range internal {
		h.Reported = append(h.Reported, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return h
}

// Packets of pods to an ExternalIP that only the cloud translates are for the host.
func TestExternalIPsThatACloudTranslates(t *testing.T) {
	h := reporting([]string{"203.0.113.20", "192.0.2.1", "2001:db8::20", "hostname", "127.0.0.1"}, "192.0.2.9", "192.0.2.1")
	if diff := cmp.Diff([]string{
		"PREROUTING -d 203.0.113.20/32 -i k8s-node1 -j DNAT --to-destination 192.0.2.1",
		"PREROUTING -d 203.0.113.20/32 -i k8s-node1 -j NODEPORTS",
		"PREROUTING -j WAYS",
	}, rules(chainsOf(h, IPv4, web(), nil), "nat", "PREROUTING")); diff != "" {
		t.Errorf("iptables (-want +got):\n%s", diff)
	}
	var texts []string
	for _, r := range indexed(NewRules(h, IPv4, web(), nil).Table()).chains["svc-prerouting"] {
		texts = append(texts, r.Text)
	}
	if diff := cmp.Diff([]string{
		"jump svc-translate",
		`ip daddr 203.0.113.20 iifname "k8s-node1" meta l4proto . th dport vmap @svc-nodeports`,
		`ip daddr 203.0.113.20 iifname "k8s-node1" dnat to 192.0.2.1`,
	}, texts); diff != "" {
		t.Errorf("nftables (-want +got):\n%s", diff)
	}
	h.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	if got := rules(chainsOf(h, IPv4, web(), nil), "nat", "PREROUTING -d", "NODEPORTS"); got != nil {
		t.Errorf("NodePorts in spite of --nodeport-addresses: %q", got)
	}
}

// UDP of pods to such an ExternalIP leaves an endpoint that is gone, as at the host's own addresses.
func TestStaleConnectionsToMappedExternalIPs(t *testing.T) {
	h := reporting([]string{"203.0.113.20"}, "192.0.2.1")
	h.Pods = []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")}
	table := NewTracked(h, IPv4, web(func(s *service.Resolved) { s.Ports[0].Protocol = corev1.ProtocolUDP }), nil)
	for _, tt := range []struct {
		to, answers string
		want        bool
	}{
		{"203.0.113.20:30080", "10.128.1.3:8080", false},
		{"203.0.113.20:30080", "172.30.0.10:80", false},
		{"203.0.113.20:30080", "10.128.2.9:8080", true}, // an endpoint before
		{"203.0.113.20:30080", "172.30.0.9:80", true},   // of a Service that had the NodePort before
		{"203.0.113.20:30081", "10.128.1.9:8080", true}, // a NodePort before
		{"203.0.113.20:53", "192.0.2.1:53", false},      // a program of this host
		{"203.0.113.21:30080", "10.128.2.9:8080", false},
	} {
		if got := table.Stale(netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.answers)); got != tt.want {
			t.Errorf("to %s, answered by %s: %v", tt.to, tt.answers, got)
		}
	}
	if slices.Contains(h.Addrs, addr("203.0.113.20")) {
		t.Error("the host's addresses changed")
	}
}

func TestExternalIPsWithoutAHostToSendThemTo(t *testing.T) {
	away := reporting([]string{"203.0.113.20"}, "192.0.2.1")
	away.Management = ""
	for name, h := range map[string]Host{
		"no InternalIP":                 reporting([]string{"203.0.113.20"}),
		"an InternalIP of another host": reporting([]string{"203.0.113.20"}, "192.0.2.2"),
		"no management port":            away,
	} {
		for _, family := range []netip.Addr{IPv4, IPv6} {
			if got, _ := h.mapped(family); got != nil {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}

// A kubelet may write as many addresses as it likes into its Node.
func TestExternalIPsAreBounded(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("203.0.%d.%d", i/250, i%250))
	}
	got, _ := reporting(many, "192.0.2.1").mapped(IPv4)
	if len(got) != maxMapped || !slices.IsSortedFunc(got, netip.Addr.Compare) {
		t.Errorf("%d addresses: %v", len(got), got)
	}
}
