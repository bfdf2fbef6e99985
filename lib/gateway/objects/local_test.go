package objects

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/kube"
)

// takeLocal records a Service of policies Local with a health check port, and its endpoints: some on each of many nodes.
func takeLocal(o *Objects, nodes, each int) {
	internal := corev1.ServiceInternalTrafficPolicyLocal
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, "172.30.0.9"
	s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, &internal, 31000
	s.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053},
	}
	o.takeService(kube.Event{Object: s})
	for first := 0; first < nodes*each; first += 100 {
		http, dns, tcp, udp, port := "http", "dns", corev1.ProtocolTCP, corev1.ProtocolUDP, int32(8080)
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", first), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &http, Protocol: &tcp, Port: &port}, {Name: &dns, Protocol: &udp, Port: &port}},
		}
		for i := first; i < min(first+100, nodes*each); i++ {
			node := fmt.Sprint("n", i%nodes)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address(i, nodes).String()}, NodeName: &node})
		}
		o.takeService(kube.Event{Object: slice})
	}
}

// address is that of endpoint i, in the subnet of its node.
func address(i, nodes int) netip.Addr {
	n := i % nodes
	return netip.AddrFrom4([4]byte{10, byte(n / 250), byte(n % 250), byte(2 + i/nodes)})
}

// L3: a host serves its endpoints of a Service with policy Local however many there are on others: it answers health checks,
// leads connections to them, and keeps those that OVN leads there.
func TestAHostServesItsOwnOfManyEndpoints(t *testing.T) {
	const nodes, each = 300, 5
	for _, n := range []int{0, 150, 299} {
		o := New(Parts{}, true)
		o.Node = fmt.Sprint("n", n)
		takeLocal(o, nodes, each)
		o.Resolve(nil)
		if got := nodeport.HealthChecks(o.Node, o.Services())[31000].Local; got != each {
			t.Errorf("%s: %d endpoints in the answer to health checks, want %d", o.Node, got, each)
		}
		var want []netip.AddrPort
		for i := n; i < nodes*each; i += nodes {
			want = append(want, netip.AddrPortFrom(address(i, nodes), 8080))
		}
		all := service.AllFrontends(o.Services(), service.Network{})
		h := nodeport.Host{Node: o.Node, Management: "k8s-" + o.Node, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		var kept, refused, both []string // rules to endpoints that keep the source
		for _, c := range nodeport.NewRules(h, nodeport.IPv4, all, nil).Chains(false) {
			for _, r := range c.Rules {
				if _, to, found := strings.Cut(r, "--to-destination "); found && strings.Contains(c.Name, "-KEP-") {
					kept = append(kept, to)
				}
				if c.Name == "OVN-SVC-REFUSE" {
					refused = append(refused, r)
				}
			}
		}
		for _, e := range want {
			both = append(both, e.String(), e.String()) // TCP and UDP
		}
		if slices.Sort(kept); !slices.Equal(kept, both) || len(refused) > 0 {
			t.Errorf("%s: NodePorts lead to %v, want %v; it refuses %v", o.Node, kept, both, refused)
		}
		stale, tracked := service.StaleUDP(all), nodeport.NewTracked(h, nodeport.IPv4, all, nil)
		for _, e := range want {
			at := netip.AddrPortFrom(h.Addrs[0], 30053)
			if stale(at, e) || !tracked.Answers[at][e] {
				t.Errorf("%s forgets UDP connections to %v", o.Node, e)
			}
		}
	}
}
