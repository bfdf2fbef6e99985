package objects

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/kube"
)

// L1: the helper refuses a Service beyond the limit of its namespace, like the watcher, as soon as its endpoints show
// its weight.
func TestALargeServiceIsRefusedByItsEndpoints(t *testing.T) {
	o := New(Parts{}, true)
	for n := range 5 {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", n)}}
		s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, fmt.Sprintf("172.30.0.%d", 9+n)
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		for i := range 100 {
			name, tcp, port := fmt.Sprint("p", i), corev1.ProtocolTCP, int32(8000+i)
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: tcp, Port: port})
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &tcp, Port: &port})
		}
		for i := range 1000 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i/250, 1+i%250)}})
		}
		o.takeService(kube.Event{Object: s})
		o.takeService(kube.Event{Object: slice})
	}
	o.Resolve(nil)
	if got := o.Services(); len(got) != 5 || got[0].OverQuota || !got[4].OverQuota {
		t.Errorf("%d Services, and the youngest is not refused", len(got))
	}
}
