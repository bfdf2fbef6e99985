package gateway

import (
	"slices"
	"strings"
	"testing"

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
