package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// podMTU is the MTU of the test's pods in bytes, the default.
const podMTU = 1400

// narrowMTU is the MTU of a router outside, in bytes.
const narrowMTU = 1300

// P1: packets larger than the path MTU cause an ICMP error of path MTU discovery, or arrive in fragments: by all
// protocols, in and out, to pods on the gateway's node and on another, and to Services. None is lost silently.
// OVNK8S_TEST_SIZES is the step in bytes between tested sizes, in addition to those at the edges: 1 means all.
func TestPathMTU(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2"})
	around, n := surround(t), cluster.Node("minion1")
	for _, p := range list {
		largeSegments(t, p)
	}
	service, err := cluster.CreateService(t.Context(), "web", kubelet.DefaultPort, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Kube.Client().CoreV1().Services("default").Delete(context.Background(), "web", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	service.Backends = slices.Collect(maps.Values(list))
	await := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := cluster.AwaitServices(ctx, []world.Service{service}); err != nil {
			t.Fatal(err)
		}
	}
	await() // the Service's changes are not the gateway's
	for _, mode := range world.Modes() {
		t.Run(mode, func(t *testing.T) {
			seen := addGateway(t, n, mode)
			await()
			withdraw, err := cluster.RouteServices([]world.Service{service}, seen)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(withdraw)
			intoServices(t, around.Outside, service, seen)
			// Without this, one direct packet was lost in two runs of all sizes. It probably had the port of a
			// connection to the Service a moment ago: both have one tuple for replies.
			sh(t, n, "ovs-appctl --target=ovs-vswitchd dpctl/flush-conntrack")
			for _, p := range list {
				for i, a := range p.Addresses {
					withdraw, err := cluster.Fabric.Route(netip.PrefixFrom(a, a.BitLen()), seen[i])
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(withdraw)
					into(t, around.Outside, a)
					outOf(t, p, around.Outside.Addresses[i])
				}
			}
		})
	}
}

// largeSegments makes a pod announce the MSS of Ethernet, so others send segments larger than its MTU.
func largeSegments(t *testing.T, p world.Endpoint) {
	t.Helper()
	inPod(t, p, `
		ip -4 route change $(ip -4 route show default) advmss 1460
		ip -6 route change $(ip -6 route show default | sed 's/ pref .*//') advmss 1440`)
}

// intoServices sends packets of all sizes from outside to a Service. The userspace datapath does not support fragments
// to Services: see services.md.
func intoServices(t *testing.T, from world.Endpoint, s world.Service, gateway []netip.Addr) {
	t.Helper()
	for _, d := range cluster.Frontends(s, gateway) {
		if d.Name != "gateway:NodePort" && d.Name != "LB IP" {
			continue
		}
		for _, a := range d.Addresses {
			sizes(t, probe.Probe{Netns: from.Netns, Network: "udp", Address: probe.Address(a, d.Ports["udp"])}, podMTU, false)
			transfers(t, probe.Probe{Netns: from.Netns, Network: "tcp", Address: probe.Address(a, d.Ports["tcp"])})
		}
	}
}

// into sends packets of all sizes from outside to a pod.
func into(t *testing.T, from world.Endpoint, to netip.Addr) {
	t.Helper()
	p := probe.Probe{Netns: from.Netns, Address: probe.Address(to, kubelet.DefaultPort)}
	for _, p.Network = range []string{"udp", "icmp"} {
		sizes(t, p, podMTU, false)
		sizes(t, p, podMTU, true)
	}
	p.Network = "tcp"
	transfers(t, p)
}

// outOf sends packets of all sizes from a pod through a router outside with a smaller MTU, and requests large answers
// from a server outside.
func outOf(t *testing.T, pod world.Endpoint, to netip.Addr) {
	t.Helper()
	p := probe.Probe{Netns: pod.Netns, Address: probe.Address(to, kubelet.DefaultPort)}
	p.Network = "tcp"
	transfers(t, p)
	p.Network = "udp"
	within(t, p.Netns, func(ctx context.Context) error { return p.Give(ctx, 1472) })
	for _, p.Network = range []string{"udp", "icmp"} {
		sizes(t, p, 1500, true) // in fragments by the pod
	}
	widen, err := cluster.Fabric.Narrow(narrowMTU)
	if err != nil {
		t.Fatal(err)
	}
	defer widen()
	for _, p.Network = range []string{"udp", "icmp"} {
		sizes(t, p, narrowMTU, false)
		if to.Is4() { // not fragments of IPv6 on a path with a smaller MTU than the pod's link: see gateways.md
			sizes(t, p, narrowMTU, true)
		}
	}
	p.Network = "tcp"
	transfers(t, p)
}

// within empties the path MTU cache of netns, calls ask with a timeout, and expects no error.
func within(t *testing.T, netns string, ask func(context.Context) error) {
	t.Helper()
	forget(t, netns)
	ctx, cancel := context.WithTimeout(t.Context(), patience/4)
	defer cancel()
	if err := ask(ctx); err != nil {
		t.Error(err)
	}
}

// transfers sends more than a window by TCP in both directions.
func transfers(t *testing.T, p probe.Probe) {
	t.Helper()
	within(t, p.Netns, func(ctx context.Context) error { return p.Upload(ctx, 1<<18) })
	within(t, p.Netns, func(ctx context.Context) error { return p.Download(ctx, 1<<18) })
}

// forget empties the path MTU cache of the host outside and of another network namespace.
func forget(t *testing.T, netns string) {
	t.Helper()
	for _, ns := range []string{netns, cluster.Outside.Netns()} {
		for _, family := range []string{"ipv4", "ipv6"} {
			err := probe.In(ns, func() error { return os.WriteFile("/proc/sys/net/"+family+"/route/flush", []byte("-1"), 0) })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sizes sends packets of several sizes, with DF or in fragments. Those up to mtu bytes must be delivered, larger ones
// refused by ICMP.
func sizes(t *testing.T, p probe.Probe, mtu int, fragment bool) {
	t.Helper()
	list, began := packetSizes(mtu), time.Now()
	defer func() {
		t.Logf("%v, mtu %d, without DF %v: %d sizes in %v", p, mtu, fragment, len(list), time.Since(began))
	}()
	for _, size := range list {
		ask := func() (wrong bool, text string) {
			forget(t, p.Netns)
			ctx, cancel := context.WithTimeout(t.Context(), patience/4)
			defer cancel()
			delivered, refused, err := p.Sized(ctx, size, fragment)
			if err != nil {
				t.Fatal(err)
			}
			fits := size <= mtu
			return delivered != (fits || fragment) || refused && fits || !delivered && !refused, fmt.Sprintf("delivered %v, refused by ICMP %v", delivered, refused)
		}
		if wrong, text := ask(); wrong { // the others tell whether that depends on the port, or on cached flows
			_, again := ask()
			err := cluster.ForgetFlows(t.Context())
			_, last := ask()
			t.Errorf("%v, packets of %d bytes, without DF %v: %s; again: %s; without cached flows: %s (%v)", p, size, fragment, text, again, last, err)
		}
	}
}

// packetSizes returns the sizes around mtu in bytes, and those of OVNK8S_TEST_SIZES.
func packetSizes(mtu int) []int {
	sizes := []int{mtu, min(mtu+1, 1500)}
	if step, _ := strconv.Atoi(os.Getenv("OVNK8S_TEST_SIZES")); step > 0 {
		for size := 1280; size <= 1500; size += step {
			sizes = append(sizes, size)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// P2: the log, an Event, --check and commands report a NIC with an MTU too small for tunnels.
func TestTunnelMTU(t *testing.T) {
	require.Nothing(t, require.Cluster, world.Missing())
	n := cluster.Node("minion2")
	restore := func() { sh(t, n, "ovs-vsctl set Interface breth0 mtu_request=1500") }
	t.Cleanup(restore)
	const what = "mtu 1400 of pods is too large for tunnels"
	told := func() int {
		return strings.Count(sh(t, n, "cat "+logOf(helper())), what)
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
	if !ovnkube() {
		_, stderr, err := n.Run(t.Context(), "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--minion-switch-subnet="+n.Subnets, "--node-name="+n.Name, "--dry-run")
		if err != nil || !strings.Contains(stderr, "warning: "+what) {
			t.Errorf("minion-init: %v, %s", err, stderr)
		}
	}
	restore()
	consistent(t)
}

// P2: Events report a tunnel address that comes late, and pods created with a larger MTU.
func TestTunnelAddressAndPodMTU(t *testing.T) {
	pods(t, map[string]string{"web-0": "minion2"})
	n := cluster.Node("minion2")
	const late = "198.18.0.99"
	restore := func() {
		sh(t, n, "ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip="+n.IPv4().String()+" -- remove Open_vSwitch . external_ids ovn-k8s-mtu")
	}
	t.Cleanup(restore)
	told := func(what string, count int) {
		t.Helper()
		var log string
		eventually(t, "the gateway helper tells: "+what, func() bool {
			log = sh(t, n, "grep 'mtu: ' "+logOf(helper())+" || :")
			return strings.Count(log, what) == count
		}, &log)
	}
	sh(t, n, "ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip="+n.IPv4().String()+","+late)
	told("ovn-encap-ip "+late+" is not an address of this host", 1)
	var check string
	eventually(t, "--check names the host", func() bool {
		check = fmt.Sprint(cluster.Check(t.Context()))
		return strings.Contains(check, "! Chassis minion2: ovn-encap-ip is not set or is no address of that host")
	}, &check)
	recovered := strings.Count(sh(t, n, "cat "+logOf(helper())), "mtu: recovered")
	sh(t, n, "ip address add "+late+"/24 dev breth0")
	t.Cleanup(func() { sh(t, n, "ip address del "+late+"/24 dev breth0") })
	eventually(t, "the gateway helper tells that the address has come", func() bool {
		return strings.Count(sh(t, n, "cat "+logOf(helper())), "mtu: recovered") == recovered+1
	})
	restore()
	sh(t, n, "ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-mtu=1300")
	told("pods with a larger MTU than ovn-k8s-mtu 1300: 1, logical port default_web-0 first", 1)
	eventually(t, "--check tells of the pod", func() bool {
		check = fmt.Sprint(cluster.Check(t.Context()))
		return strings.Contains(check, "! Chassis minion2: pods with a larger MTU than ovn-k8s-mtu: 1:")
	}, &check)
	restore()
	consistent(t)
}
