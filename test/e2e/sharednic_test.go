package e2e

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/world"
)

// A host has NodePorts at all its addresses: on a NIC shared with a gateway router also at those that the gateway router and the
// Node do not have, such as that of keepalived. There the host's rules serve them.
func TestNodePortsAtMoreAddressesOfASharedNIC(t *testing.T) {
	p := pods(t, map[string]string{"web-near": "minion1", "web-far": "minion2"})
	n := cluster.Node("minion1")
	at := addGateway(t, n, world.Shared)
	var more []netip.Addr
	for _, a := range n.Addresses {
		bytes := a.Addr().AsSlice()
		bytes[len(bytes)-1] = 200
		other, _ := netip.AddrFromSlice(bytes)
		more = append(more, other)
		flag := ""
		if other.Is6() {
			flag = " nodad"
		}
		address := netip.PrefixFrom(other, a.Bits()).String() + " dev breth0"
		sh(t, n, "ip address add "+address+flag)
		t.Cleanup(func() { sh(t, n, "ip address del "+address) })
	}
	outside := surround(t).Outside
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	seen := firstGateway([]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	backends := []world.Endpoint{p["web-near"], p["web-far"]}
	for range 3 {
		try(t, slices.Concat(nodePortWays(outside, at, s, backends, seen), nodePortWays(outside, more, s, backends, n.Management)))
	}
	near := service(t, "near", func(s *corev1.Service) {
		localPolicy(s)
		s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeNodePort, map[string]string{"app": "web"}
	})
	try(t, slices.Concat(nodePortWays(outside, at, near, backends[:1], outside.Addresses), nodePortWays(outside, more, near, backends[:1], n.Management)))
	consistent(t)
}
