package e2e

import (
	"fmt"
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
	more := addAddresses(t, n, 210)
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

// addAddresses adds addresses to a node's shared bridge until the end of the test: one of each family, with this last byte. No other
// test may use it: neighbours know another MAC for a while.
func addAddresses(t *testing.T, n *world.Node, last byte) (more []netip.Addr) {
	t.Helper()
	for _, a := range n.Addresses {
		bytes := a.Addr().AsSlice()
		bytes[len(bytes)-1] = last
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
	return more
}

// A Node on bare metal may report a public address on the NIC shared with the gateway router, beside the router's own.
// Services have frontends there, too, and with the policy Local keep the client's address.
func TestServicesAtAnExternalIPOfASharedNIC(t *testing.T) {
	p := pods(t, map[string]string{"web-near": "minion1", "web-far": "minion2"})
	n := cluster.Node("minion1")
	at := addGateway(t, n, world.Shared)
	more := addAddresses(t, n, 211)
	reportExternal(t, n.Name, []string{more[0].String(), more[1].String()})
	outside := surround(t).Outside
	seen := firstGateway([]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	backends := []world.Endpoint{p["web-near"], p["web-far"]}
	ofPort := func(number int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeNodePort, map[string]string{"app": "web"}
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].Port = number
			}
			for _, a := range slices.Concat(at, more) {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
			}
		}
	}
	all := service(t, "web", ofPort(80))
	local := service(t, "near", func(s *corev1.Service) { ofPort(81)(s); localPolicy(s) })
	// An endpoint in the network of another host gives each gateway a load balancer of its own.
	mixed := service(t, "mixed", func(s *corev1.Service) { ofPort(82)(s); localPolicy(s); withoutSelector(s) })
	setEndpoints(t, "mixed", states{p["web-near"].Addresses[0]: conditions(true, true, false), cluster.Node("minion2").IPv4(): conditions(true, true, false)})
	for _, to := range [][]netip.Addr{at, more} {
		try(t, slices.Concat(nodePortWays(outside, to, all, backends, seen), nodePortWays(outside, to, local, backends[:1], outside.Addresses)))
		try(t, ofIPv4(nodePortWays(outside, to, mixed, backends[:1], outside.Addresses)))
		try(t, waysTo(outside, to, 80, backends, seen))
		try(t, waysTo(outside, to, 81, backends[:1], outside.Addresses))
		try(t, ofIPv4(waysTo(outside, to, 82, backends[:1], outside.Addresses)))
	}
	consistent(t)
}

// OVN has NodePorts at the first addresses of a Node. At the others the host's rules serve them, to pods and outside.
func TestNodePortsAtManyAddressesOfANode(t *testing.T) {
	p := pods(t, map[string]string{"web-near": "minion1", "web-far": "minion2", "own": "minion1", "far": "minion2"})
	n := cluster.Node("minion1")
	at := addGateway(t, n, world.Shared)
	more := addAddresses(t, n, 212)
	reported := []string{more[0].String(), more[1].String()}
	for i := range 4 {
		reported = append(reported, fmt.Sprint("1.2.3.", 1+i), fmt.Sprint("2001:2::", 1+i))
	}
	reportExternal(t, n.Name, reported)
	outside := surround(t).Outside
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	seen := firstGateway([]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	backends := []world.Endpoint{p["web-near"], p["web-far"]}
	try(t, slices.Concat(nodePortWays(outside, at, s, backends, seen), nodePortWays(outside, more, s, backends, n.Management)))
	try(t, slices.Concat(nodePortWays(p["own"], at, s, backends, p["own"].Addresses), nodePortWays(p["own"], more, s, backends, n.Management)))
	try(t, nodePortWays(p["far"], slices.Concat(at, more), s, backends, n.Management))
}

// A host may have a gateway on its NIC, and another one with a NIC of its own. Replies leave through the first one,
// whatever the names. Clients keep their addresses there, and hostPorts are served by both.
func TestTwoGatewaysOnAHost(t *testing.T) {
	ofPrograms(t, "nothing: it makes one gateway of a host")
	p := pods(t, map[string]string{"all": "minion1", "tcp": "minion1", "udp": "minion1", "web-near": "minion1"}, hostPorts)
	n, outside := cluster.Node("minion1"), surround(t).Outside
	try(t, hostPortWays(p, hosts()[2], nodeAddrs("minion1"), nodeAddrs("minion2"))) // the host has their rules before the gateway
	at := addGateway(t, n, world.Shared)
	second, err := cluster.GatewayInit(t.Context(), n, world.Dedicated, "--node-name=second")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sh(t, n, "ovn-k8s-overlay gateway-remove --node-name=second") })
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort; localPolicy(s) })
	join := []netip.Addr{netip.MustParseAddr("100.64.0.3"), netip.MustParseAddr("fd98::3")}
	try(t, slices.Concat(nodePortWays(outside, at, s, []world.Endpoint{p["web-near"]}, outside.Addresses), hostPortWays(p, outside, at, outside.Addresses)))
	try(t, hostPortWays(p, outside, second, join))
	consistent(t)
}
