package nbsync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// serviceWalk changes Services, their endpoints, and the objects used by these.
type serviceWalk struct {
	*rand.Rand
	api map[string]any // as they are now
}

func (k serviceWalk) change(w *desired.World) []nb.Unit {
	n := k.IntN(6)
	meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("svc", n), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprint("svc", n)}}
	var o any
	switch k.IntN(3) {
	case 0:
		o = k.service(meta, n)
	case 1:
		o = k.slice(meta)
	default:
		o = k.node()
	}
	key := fmt.Sprintf("%T %s", o, o.(metav1.Object).GetName())
	if k.IntN(3) == 0 {
		delete(k.api, key)
		return w.Remove(o)
	}
	k.api[key] = o
	return w.Put(o)
}

func (k serviceWalk) service(meta metav1.ObjectMeta, n int) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: fmt.Sprint("172.16.0.", n),
		ClusterIPs: []string{fmt.Sprint("172.16.0.", n), fmt.Sprint("fd02::", n)},
		Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 53, NodePort: int32(30000 + k.IntN(3))}},
	}}
	local := corev1.ServiceInternalTrafficPolicyLocal
	if k.IntN(2) == 0 {
		s.Spec.InternalTrafficPolicy = &local
	}
	if k.IntN(2) == 0 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if k.IntN(3) == 0 {
		s.Spec.ExternalIPs, s.Spec.SessionAffinity = []string{"203.0.113.1"}, corev1.ServiceAffinityClientIP
	}
	return s
}

func (k serviceWalk) slice(meta metav1.ObjectMeta) *discoveryv1.EndpointSlice {
	udp, port, none := corev1.ProtocolUDP, int32(5353), ""
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &none, Protocol: &udp, Port: &port}}}
	for range k.IntN(4) {
		n := k.IntN(4)
		node := fmt.Sprint("n", n)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", n, 10+k.IntN(4))}, NodeName: &node})
	}
	return s
}

func (k serviceWalk) node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", k.IntN(4))}}
	for range k.IntN(3) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", k.IntN(5))})
	}
	return n
}

// hosted is a cluster of nodes with known hosts.
func hosted(t testing.TB, nodes ...int) topology.Cluster {
	t.Helper()
	c := cluster(t, nodes...)
	for _, n := range nodes {
		c = c.WithChassis(fmt.Sprint("n", n), fmt.Sprint("chassis-", n))
	}
	return c
}

// wantHostPorts gives some pods hostPorts; some of these conflict with each other, and some with Services.
func wantHostPorts(r *rand.Rand, p *corev1.Pod) {
	if r.IntN(3) > 0 {
		return
	}
	p.CreationTimestamp = metav1.Unix(int64(r.IntN(5)), 0)
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{
		HostIP: []string{"", "0.0.0.0", "::", "192.0.2.1", "127.0.0.1", "nonsense"}[r.IntN(6)], HostPort: int32(30000 + r.IntN(4)), ContainerPort: 8080,
		Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[r.IntN(2)],
	}}})
}
