package gateway

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/firewall"
)

// Rules and flows do not wait for the parts that look at databases and at other programs.
func TestTurns(t *testing.T) {
	e := &engine{helper: &Helper{Options: Options{Bridge: "breth0"}}, firewall: map[string]*firewall.Firewall{partRules4: nil, partRules6: nil}}
	all := append(e.all(), partServices)
	slices.SortFunc(all, turn)
	const want = "flows, forwarding, local gateway, rules4, rules6, conflicts, firewall, health, mtu, ports, routes, services, stale, zones"
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The proxy needs the rules of the families of pods here, and the flows of a bridge with a gateway.
func TestPartsOfTheProxy(t *testing.T) {
	firewalls := map[string]*firewall.Firewall{
		partRules4: firewall.New(config.AnyFirewall, nodeport.IPv4), partRules6: firewall.New(config.AnyFirewall, nodeport.IPv6),
	}
	ipv4, ipv6 := netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd01::/64")
	for _, tt := range []struct {
		pods    []netip.Prefix
		gateway bool
		want    []string
	}{
		{nil, false, []string{partRules4, partRules6}},
		{nil, true, []string{partFlows, partRules4, partRules6}},
		{[]netip.Prefix{ipv4}, true, []string{partFlows, partRules4}},
		{[]netip.Prefix{ipv6}, false, []string{partRules6}},
		{[]netip.Prefix{ipv4, ipv6}, false, []string{partRules4, partRules6}},
	} {
		if got := slices.Sorted(slices.Values(proxyParts(firewalls, view{host: nodeport.Host{Pods: tt.pods}}, tt.gateway))); !slices.Equal(got, tt.want) {
			t.Errorf("pods %v, gateway %t: %v, want %v", tt.pods, tt.gateway, got, tt.want)
		}
	}
}
