package e2e

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/world"
)

// hostPort is where the hostNetwork backend answers.
const hostPort = 9090

// TestServiceMatrix tries every client of every kind of backend through every
// door, by TCP and UDP, in both families. This kernel has no SCTP.
func TestServiceMatrix(t *testing.T) {
	where := map[string]string{"near": "minion1", "far": "minion2", "web": "minion1", "hostweb": "minion1"}
	p := pods(t, where, func(pod *corev1.Pod) {
		if pod.Name == "hostweb" {
			pod.Spec.HostNetwork = true
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: hostPort, HostPort: hostPort}}
		}
	})
	gw := cluster.Node("minion2")
	seen := addGateway(t, gw, world.Dedicated)

	var ways []world.Way
	for i, name := range []string{"web", "hostweb"} {
		service := createService(t, name, []int{kubelet.DefaultPort, hostPort}[i], i+1)
		service.Backends = []world.Endpoint{p[name]}
		for j, a := range slices.Concat(service.ExternalIPs, service.LoadBalancerIPs) {
			withdraw, err := cluster.Fabric.Route(netip.PrefixFrom(a, a.BitLen()), seen[j%2])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(withdraw)
		}
		doors := cluster.Doors(service, seen)
		for _, way := range cluster.ServiceWays(service, doors, clients(p, p[name])) {
			way.Row = name + " from " + way.Row
			ways = append(ways, way)
		}
	}
	failed := world.Try(t.Context(), ways)
	t.Logf("%d of %d ways work: who the backend saw\n\n%s", len(ways)-len(failed), len(ways), world.Table(ways))
	for _, way := range failed {
		t.Errorf("%v: %v", way, way.Err)
	}
}

// clients are all kinds of them, for a backend on minion1. One in the host's
// network is the same as its host.
func clients(p map[string]world.Endpoint, backend world.Endpoint) []world.Client {
	host := func(name string) world.Endpoint {
		n := cluster.Node(name)
		addresses := slices.Clone(n.Management)
		for _, a := range n.Addresses {
			addresses = append(addresses, a.Addr())
		}
		return world.Endpoint{Name: name, Netns: n.Netns(), Addresses: addresses}
	}
	var outside []netip.Addr
	for _, a := range cluster.Outside.Addresses {
		outside = append(outside, a.Addr())
	}
	all := []world.Client{
		{Row: "pod, same node", Endpoint: p["near"]},
		{Row: "pod, other node", Endpoint: p["far"]},
		{Row: "host, same node", Endpoint: host("minion1")},
		{Row: "host, other node", Endpoint: host("minion2")},
		{Row: "outside", Endpoint: world.Endpoint{Name: "outside", Netns: cluster.Outside.Netns(), Addresses: outside}, Outside: true},
	}
	if backend.Netns != cluster.Node("minion1").Netns() {
		all = append(all, world.Client{Row: "the backend itself", Endpoint: backend})
	}
	return all
}

// createService makes a Service for the length of the test.
func createService(t *testing.T, name string, port, number int) world.Service {
	t.Helper()
	s, err := cluster.CreateService(t.Context(), name, port, number)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := cluster.Kube.Client().CoreV1().Services(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return s
}
