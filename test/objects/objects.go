// Package objects has Kubernetes objects for tests.
package objects

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Web is a Service of type ClusterIP with port http, 80/TCP.
func Web(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "172.16.1.10", ClusterIPs: []string{"172.16.1.10"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// Slice is an EndpointSlice of Web. Each host is "ADDRESS[@NODE][ WORD…]", with the
// words unready, draining, gone, zone=Z and node=N.
func Slice(name string, port int32, hosts ...string) *discoveryv1.EndpointSlice {
	tcp, portName := corev1.ProtocolTCP, "http"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Protocol: &tcp, Port: &port}},
	}
	for _, h := range hosts {
		words := strings.Fields(h)
		addr, node, on := strings.Cut(words[0], "@")
		if strings.Contains(addr, ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		e := discoveryv1.Endpoint{Addresses: []string{addr}}
		if on {
			e.NodeName = &node
		}
		for _, w := range words[1:] {
			describe(&e, w)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func describe(e *discoveryv1.Endpoint, word string) {
	yes, no := true, false
	if e.Hints == nil && strings.Contains(word, "=") {
		e.Hints = &discoveryv1.EndpointHints{}
	}
	switch key, value, _ := strings.Cut(word, "="); key {
	case "unready":
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
	case "draining":
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	case "gone":
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
	case "zone":
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: value})
	case "node":
		e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: value})
	}
}

// NodePort makes Web one of type NodePort.
func NodePort(s *corev1.Service) {
	s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30082
}

// Sticky adds session affinity to Web.
func Sticky(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }

// Dual gives Web a cluster IP of each family.
func Dual(s *corev1.Service) { s.Spec.ClusterIPs = []string{"172.16.1.10", "fd02::a"} }

// Many is Web with n ports, each with a NodePort.
func Many(n int, edit ...func(*corev1.Service)) *corev1.Service {
	s := Web(append([]func(*corev1.Service){NodePort}, edit...)...)
	for p := range n - 1 {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Protocol: corev1.ProtocolTCP, Port: int32(9000 + p), NodePort: int32(10300 + p)})
	}
	return s
}
