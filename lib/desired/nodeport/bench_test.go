package nodeport

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// BenchmarkTable renders the rules of 10 000 Services for nft: all of them, and after a change of one.
func BenchmarkTable(b *testing.B) {
	services := many()
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			NewRules(node1, IPv4, service.AllFrontends(services, service.Network{}), nil).Table()
		}
	})
	b.Run("one", func(b *testing.B) {
		var kept Tables
		var lists service.Lists
		for b.Loop() {
			s := *services[5000]
			services[5000] = &s
			kept.Rules(node1, IPv4, lists.Of(services, service.Network{}), nil).Table()
		}
	})
}

// many returns 10 000 Services with a load balancer.
func many() (services []*service.Resolved) {
	for i := range 10000 {
		at := func(a byte) netip.Addr { return netip.AddrFrom4([4]byte{a, 0, byte(i >> 8), byte(i)}) }
		s := service.Resolved{Service: service.Service{
			Key: service.Key{Namespace: "default", Name: fmt.Sprint("web-", i)}, Type: corev1.ServiceTypeLoadBalancer, Ours: true,
			ClusterIPs: []netip.Addr{at(172)}, Ports: []service.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, Ingress: []service.Ingress{{Addr: at(203)}},
		}}
		var to service.Endpoints
		for e := range 3 {
			to = append(to, service.Endpoint{Host: &service.Host{Addr: netip.AddrFrom4([4]byte{10, 128, 1, byte(3 + e)}), Node: "node1", State: service.Serving}, Port: 8080})
		}
		s.Endpoints = []service.Endpoints{to}
		services = append(services, &s)
	}
	return services
}
