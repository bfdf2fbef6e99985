package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/need"
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

// P2: a NIC whose MTU becomes too small for tunnels is told of in the log, by an Event, by --check and by commands.
func TestTunnelMTU(t *testing.T) {
	need.Nothing(t, need.Cluster, world.Missing())
	n := cluster.Node("minion2")
	restore := func() { sh(t, n, "ovs-vsctl set Interface breth0 mtu_request=1500") }
	t.Cleanup(restore)
	const what = "mtu 1400 of pods is too large for tunnels"
	told := func() int {
		return strings.Count(sh(t, n, "cat /var/log/openvswitch/ovn-k8s-gateway-helper.log"), what)
	}
	before := told()
	sh(t, n, "ovs-vsctl set Interface breth0 mtu_request=1450")
	var check string
	eventually(t, "--check names the host", func() bool {
		check = fmt.Sprint(cluster.Check(t.Context()))
		return strings.Contains(check, "! Chassis minion2: "+what)
	}, &check)
	var events string
	eventually(t, "the Node has an Event", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=minion2"})
		if err != nil {
			t.Fatal(err)
		}
		events = ""
		for _, e := range list.Items {
			events += e.Reason + ": " + e.Message + "\n"
		}
		return strings.Contains(events, "MTUTooLarge: node minion2: "+what)
	}, &events)
	if n := told() - before; n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	_, stderr, err := n.Run(t.Context(), "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--minion-switch-subnet="+n.Subnets, "--node-name="+n.Name, "--dry-run")
	if err != nil || !strings.Contains(stderr, "warning: "+what) {
		t.Errorf("minion-init: %v, %s", err, stderr)
	}
	restore()
	consistent(t)
}
