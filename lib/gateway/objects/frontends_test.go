package objects

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/kube"
)

// L3: the Services of a namespace cost a host a bounded number of elements and flows. Twenty with 50 ports at 990 external
// IPs each, all refused in OVN, cost it three million elements.
func TestServicesOfANamespaceAreBoundedOnHosts(t *testing.T) {
	o := New(Parts{}, true)
	for n := range 20 {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", n), CreationTimestamp: metav1.Unix(int64(n), 0)}}
		s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, fmt.Sprintf("172.30.0.%d", 9+n)
		addresses := 990
		if n > 10 {
			addresses = 150
		}
		for i := range addresses {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("203.%d.%d.%d", n, i/256, i%256))
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.9"}}},
		}
		for i := range 50 {
			name, tcp, port := fmt.Sprint("p", i), corev1.ProtocolTCP, int32(8000+i)
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: tcp, Port: port})
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &tcp, Port: &port})
		}
		o.takeService(kube.Event{Object: s})
		o.takeService(kube.Event{Object: slice})
	}
	o.Resolve(nil)
	frontends := service.AllFrontends(o.Services(), service.Network{})
	h := nodeport.Host{Node: "n1", Management: "k8s-n1", Pods: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}, Shared: "breth0"}
	elements := 0
	for _, part := range nodeport.NewRules(h, nodeport.IPv4, frontends, nil).Table().Parts {
		for _, set := range part.Sets {
			elements += len(set.Elements)
		}
	}
	flows := len(bridgeflows.Flows(bridgeflows.Bridge{MAC: "02:00:00:00:00:01", Zone: 64000}, frontends, nil))
	most := ports.MaxFrontends + 20*ports.OrdinaryFrontends
	if elements == 0 || elements > 3*most || flows > most+100 {
		t.Errorf("%d elements and %d flows for at most %d frontends", elements, flows, most)
	}
}
