package objects

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/kube"
)

// takeNodePorts records a Service with NodePorts and endpoints, shared by Services of the same number.
func takeNodePorts(o *Objects, name string, number, ports, endpoints, nodes int, first string, change func(*corev1.Service)) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Unix(int64(number), 0)}}
	s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeNodePort, fmt.Sprintf("172.30.%d.%d", number/250, 1+number%250)
	change(s)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range endpoints {
		node, at := fmt.Sprint("n", i%nodes), fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250)
		if i == 0 {
			at = first
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{at}, NodeName: &node})
	}
	for i := range ports {
		port, tcp, target := fmt.Sprint("p", i), corev1.ProtocolTCP, int32(8000+i)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: port, Protocol: tcp, Port: target, NodePort: int32(20000 + ports*number + i)})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port, Protocol: &tcp, Port: &target})
	}
	o.takeService(kube.Event{Object: s})
	o.takeService(kube.Event{Object: slice})
}

func ofClients(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }

// size is the number of chains and sets of Services on host n0.
func size(o *Objects) (chains, sets int) {
	o.Resolve(nil)
	h := nodeport.Host{Node: "n0", Management: "k8s-n0", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for _, part := range nodeport.NewRules(h, nodeport.IPv4, service.AllFrontends(o.Services(), service.Network{}), nil).Table().Parts {
		chains += len(part.Chains)
		for _, s := range part.Sets {
			if s.Timeout > 0 {
				sets++
			}
		}
	}
	return chains, sets
}

// L3: a Service for whose endpoints hosts have no room costs them few chains, whatever the reason for which they choose, and
// no other Service of the namespace is concerned.
func TestChosenEndpointsOfANamespaceAreBounded(t *testing.T) {
	internal := corev1.ServiceInternalTrafficPolicyLocal
	for reason, of := range map[string]struct {
		first  string // of the endpoints: 192.0.2.1 is this host's
		nodes  int    // with endpoints; 0: this one
		change func(*corev1.Service)
	}{
		"affinity":               {"10.0.0.1", 0, ofClients},
		"affinity, own endpoint": {"192.0.2.1", 0, ofClients},
		"own endpoint":           {"192.0.2.1", 0, func(*corev1.Service) {}},
		"internal policy":        {"10.0.0.1", 0, func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &internal }},
		"external policy":        {"10.0.0.1", 0, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }},
		"external policy, nodes": {"10.0.0.1", 1000, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }},
		"affinity of external IP": {"10.0.0.1", 0, func(s *corev1.Service) {
			ofClients(s)
			s.Spec.Type = corev1.ServiceTypeClusterIP
			s.Spec.ExternalIPs = []string{"203.0.113.9"}
		}},
	} {
		o := New(Parts{}, true)
		takeNodePorts(o, "small", 2, 1, 10, 1, "10.0.0.1", ofClients)
		chains, sets := size(o)
		takeNodePorts(o, "huge", 1, 90, 1000, max(1, of.nodes), of.first, of.change)
		nowChains, nowSets := size(o)
		if more := nowChains - chains; more > 90*5 || nowSets-sets > 90 || sets != 10 {
			t.Errorf("%s: %d chains and %d sets more than %d and %d", reason, more, nowSets-sets, chains, sets)
		}
	}
}

// L3: hosts choose among all endpoints of the Services of an ordinary namespace.
func TestOrdinaryServicesAreChosenAtHosts(t *testing.T) {
	o := New(Parts{}, true)
	for n := range 1000 {
		takeNodePorts(o, fmt.Sprint("web-", n), n, 1, 10, 10, "10.0.0.1", ofClients)
	}
	if _, sets := size(o); sets != 10_000 {
		t.Errorf("%d sets for 1000 Services of 10 endpoints", sets)
	}
	o = New(Parts{}, true)
	takeNodePorts(o, "large", 1, 2, 1000, 1000, "10.0.0.1", ofClients)
	takeNodePorts(o, "hosts", 2, 2, 1000, 1000, "192.0.2.1", func(*corev1.Service) {})
	if chains, sets := size(o); sets != 2000 || chains < 4000 {
		t.Errorf("%d chains and %d sets for a Service of 1000 endpoints and two ports, and one in the hosts' network", chains, sets)
	}
}
