package nodeport

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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
