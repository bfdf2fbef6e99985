package service

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/objects"
)

// L3: the endpoints of a node count for its host, also behind the first MaxEndpoints.
func TestChosenEndpointsBehindTheFirst(t *testing.T) {
	s := objects.Web(objects.NodePort)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	sl := Slice{Name: "web", Ports: []SlicePort{{s.Spec.Ports[0].Name, corev1.ProtocolTCP, 8080}}}
	for i := range MaxEndpoints + 896 {
		h := Host{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)}), Node: fmt.Sprintf("a%04d", i), State: Serving}
		if i >= MaxEndpoints {
			h.Node = "b"
		}
		sl.Endpoints = append(sl.Endpoints, h)
	}
	r := Resolve(New(s), []Slice{sl})
	if r.Chosen() != 896 {
		t.Errorf("a host chooses among %d endpoints, want 896", r.Chosen())
	}
	r.ResolveOn([]Slice{sl.On("b")})
	if here, elsewhere := r.On(0, "b"), r.Endpoints[0].Local("b"); len(here) != 896 || len(elsewhere) != 0 {
		t.Errorf("%d endpoints on the node, and %d of them among the first", len(here), len(elsewhere))
	}
}
