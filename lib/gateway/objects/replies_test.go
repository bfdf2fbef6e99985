package objects

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
)

// localService is a Service with external policy Local, NodePorts and a health check port: 100 endpoints on n0, one on n1.
func localService(namespace string, number, ports int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("web-", number), CreationTimestamp: metav1.Unix(int64(number), 0)}
	s := &corev1.Service{ObjectMeta: meta}
	s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, fmt.Sprintf("172.30.0.%d", number)
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, int32(31000+number)
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 101 {
		node := fmt.Sprint("n", i/100)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/100, 2+i%100)}, NodeName: &node})
	}
	for i := range ports {
		name, tcp, port := fmt.Sprint("p", i), corev1.ProtocolTCP, int32(8000+i)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: tcp, Port: port, NodePort: int32(20000 + 100*number + i)})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &tcp, Port: &port})
	}
	return s, slice
}

// L5: for want of room for replies a host refuses the same Services as the watcher on its node, whatever the order of events: it
// drops connections from outside, and load balancers learn it from health checks.
func TestHostsRefuseServicesWithTooManyReplies(t *testing.T) {
	subnets := map[string][]netip.Prefix{"n0": {netip.MustParsePrefix("10.0.0.0/24")}, "n1": {netip.MustParsePrefix("10.0.1.0/24")}}
	for seed := range uint64(20) {
		w, hosts, services := desired.NewWorld(), map[string]*Objects{}, map[string]*corev1.Service{}
		events := []func(){func() { w.Put(topology.Cluster{Nodes: subnets}) }}
		put := func(object runtime.Object, gone bool) {
			for _, o := range hosts {
				o.takeService(kube.Event{Object: object, Gone: gone})
			}
			if gone {
				w.Remove(object)
			} else {
				w.Put(object)
			}
		}
		for node, of := range subnets {
			o := New(Parts{}, true)
			o.Node, hosts[node] = node, o
			events = append(events, func() { o.SetHosts(nil, of); o.SetHosts(nil, nil); o.SetHosts(nil, of) })
		}
		for i, ports := range []int{9, 2, 10, 1, 1} { // 100 replies on n0 each
			s, slice := localService([]string{"a", "a", "b", "c", "d"}[i], 1+i, ports)
			services[s.Name] = s
			events = append(events, func() { put(s, false) }, func() { put(slice, false) })
		}
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for _, do := range events {
			do()
		}
		check := func(want ...string) {
			t.Helper()
			w.Allocate()
			for node, o := range hosts {
				o.Resolve(nil)
				health := nodeport.HealthChecks(node, o.Services())
				h := nodeport.Host{Node: node, Management: "k8s-" + node, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
				chains := fmt.Sprint(nodeport.NewRules(h, nodeport.IPv4, service.AllFrontends(o.Services(), service.Network{}), nil).Chains(false))
				for _, r := range o.Services() {
					refused := node == "n0" && slices.Contains(want, r.Name)
					if by, _ := w.Services.Service(r.Unit()); by.Refused[node] != r.Refused[node] || refused != (r.Refused[node] > 0) {
						t.Errorf("seed %d, %s: %v replies of %s are refused, by the watcher %v, want %v", seed, node, r.Refused, r.Key, by.Refused, refused)
					}
					if n := health[r.HealthCheckNodePort].Local; refused != (n == 0) {
						t.Errorf("seed %d, %s: %d endpoints of %s in the answer to health checks, want any: %v", seed, node, n, r.Key, !refused)
					}
					for _, p := range services[r.Name].Spec.Ports {
						if drop := strings.Contains(chains, fmt.Sprintf("--dport %d -m addrtype --dst-type LOCAL", p.NodePort)); drop != refused {
							t.Errorf("seed %d, %s: port %d of %s is dropped: %v, want %v", seed, node, p.NodePort, r.Key, drop, refused)
						}
					}
				}
			}
		}
		check("web-2", "web-5")
		put(services["web-3"], true)
		check("web-2")
	}
}
