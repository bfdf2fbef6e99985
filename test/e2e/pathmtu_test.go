package e2e

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// podMTU is that of the test's pods in bytes, the default.
const podMTU = 1400

// P1: packets from outside that pods cannot take are answered with the ICMP of path
// MTU discovery, or arrive in fragments. None is lost in silence.
func TestPathMTU(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2"})
	around, n := surround(t), cluster.Node("minion1")
	for _, mode := range world.Modes() {
		t.Run(mode, func(t *testing.T) {
			seen := addGateway(t, n, mode)
			s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
			for _, d := range nodePortsAt(s, seen) {
				if d.network == "udp" {
					sizes(t, around.Outside, d.at, false)
				}
			}
			for _, p := range list {
				for i, a := range p.Addresses {
					withdraw, err := cluster.Fabric.Route(netip.PrefixFrom(a, a.BitLen()), seen[i])
					if err != nil {
						t.Fatal(err)
					}
					defer withdraw()
					sizes(t, around.Outside, probe.Address(a, kubelet.DefaultPort), true)
				}
			}
		})
	}
}

// sizes sends packets of several sizes from outside, with DF, and if fragments
// reach to, without.
func sizes(t *testing.T, from world.Endpoint, to netip.AddrPort, fragments bool) {
	t.Helper()
	p := probe.Probe{Netns: from.Netns, Network: "udp", Address: to}
	for _, fragment := range slices.Compact([]bool{false, fragments}) {
		for _, size := range []int{1280, podMTU, podMTU + 1, 1500} {
			if _, err := cluster.Outside.Script(t.Context(), "ip route flush cache; ip -6 route flush cache"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience/4)
			delivered, refused, err := p.Datagram(ctx, size, fragment)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			fits := size <= podMTU
			if delivered != (fits || fragment) || refused && fits || !delivered && !refused {
				t.Errorf("%v, packets of %d bytes, without DF %v: delivered %v, refused by ICMP %v", p, size, fragment, delivered, refused)
			}
		}
	}
}
