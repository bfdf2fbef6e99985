package e2e

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// A host that sends all the time reaches an agent in its own network by the ClusterIP whenever the agent is ready: its datagrams from
// the time without an endpoint do not keep the later ones with OVN.
func TestAnAgentOfTheHostUnderUDP(t *testing.T) {
	p := pods(t, map[string]string{"agent": "minion1"}, func(pod *corev1.Pod) {
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: hostPort, HostPort: hostPort}}
	})
	s := service(t, "agent", withoutSelector)
	at := nodeAddrs("minion1")[0].String()
	set := func(addresses ...string) {
		t.Helper()
		slice := endpointSlice("agent", "agent", discoveryv1.AddressTypeIPv4)
		for i := range slice.Ports {
			*slice.Ports[i].Port = hostPort
		}
		node := "minion1"
		for _, a := range addresses {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node, Conditions: conditions(true, true, false)})
		}
		_, err := cluster.Kube.Client().DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	createSlice(t, endpointSlice("agent", "agent", discoveryv1.AddressTypeIPv4))
	c, err := probe.Call(cluster.Node("minion1").Netns(), netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		before := c.Called()
		eventually(t, "requests without an endpoint have no answer", func() bool { return c.Called().Lost > before.Lost+5 })
		set(at)
		before = c.Called()
		eventually(t, "the agent answers", func() bool { return c.Called().Asked > before.Asked && c.Called().By == p["agent"].Name })
		set()
	}
}

// A client outside leaves an endpoint after its end, though the end changes no rule of the host; not before, unless OVN can.
func TestADrainedEndpointUnderUDP(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion1"})
	addGateway(t, cluster.Node("minion1"), world.Dedicated)
	s := service(t, "web", func(s *corev1.Service) { withoutSelector(s); localPolicy(s); s.Spec.Type = corev1.ServiceTypeNodePort })
	a, b, ready, drains := p["web-a"].Addresses[0], p["web-b"].Addresses[0], conditions(true, true, false), conditions(false, true, true)
	setEndpoints(t, "web", states{a: ready, b: ready})
	to, outside := netip.AddrPortFrom(nodeAddrs("minion1")[0], uint16(s.Spec.Ports[1].NodePort)), cluster.OutsideClient()
	answer(t, outside.Endpoint, netip.AddrPortFrom(to.Addr(), uint16(s.Spec.Ports[0].NodePort)), p["web-a"], p["web-b"])
	var callers []*probe.Caller
	for len(callers) == 0 || callers[len(callers)-1].Called().By != p["web-b"].Name { // by chance
		c, err := probe.Call(outside.Netns, to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		eventually(t, "an answer", func() bool { return c.Called().By != "" })
		callers = append(callers, c)
	}
	c := callers[len(callers)-1]
	setEndpoints(t, "web", states{a: ready, b: drains})
	answer(t, outside.Endpoint, netip.AddrPortFrom(to.Addr(), uint16(s.Spec.Ports[0].NodePort)), p["web-a"])
	before := c.Called()
	eventually(t, "more answers", func() bool { return c.Called().Asked > before.Asked+5 })
	// OVN deletes conntrack entries of the kernel's datapath (ct_flush), and misses those of the other.
	if host.Datapath() == host.Kernel {
		eventually(t, "the ready endpoint answers", func() bool { return c.Called().By == p["web-a"].Name })
	} else if now := c.Called(); now.Moves > 0 {
		t.Errorf("a client of an endpoint that drains: %+v", now)
	}
	setEndpoints(t, "web", states{a: ready})
	eventually(t, "the other endpoint answers", func() bool { return c.Called().By == p["web-a"].Name })
}

// createSlice creates an EndpointSlice until the end of the test.
func createSlice(t *testing.T, slice *discoveryv1.EndpointSlice) {
	t.Helper()
	api := cluster.Kube.Client().DiscoveryV1().EndpointSlices(slice.Namespace)
	if _, err := api.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), slice.Name, metav1.DeleteOptions{}) })
}
