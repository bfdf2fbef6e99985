package ports

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/test/objects"
)

// outside returns a Service with a port at one address of a load balancer, for so many source ranges, and at one external IP.
func outside(namespace, name string, created int64, ranges int) service.Service {
	s := service.New(objects.Web(func(s *corev1.Service) {
		s.Namespace, s.Name, s.Spec.Type = namespace, name, corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"203.0.113.1"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.2"}}
		for i := range ranges {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
		}
	}))
	s.Created = created
	return s
}

// times repeats the port of a Service.
func times(n int, s service.Service) service.Service {
	for i := range n - 1 {
		p := s.Ports[0]
		p.Port += uint16(1 + i)
		s.Ports = append(s.Ports, p)
	}
	return s
}

// L3: after any changes, the older Services of each namespace have their addresses outside, as far as MaxFrontends has room,
// and the answers named each Service with another decision.
func TestFrontendsOfANamespaceAreBounded(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 4))
		var x Frontends
		put, allowed, refusals := map[service.Key]service.Service{}, map[service.Key]service.Service{}, 0
		for step := range 100 {
			s := times(1+r.IntN(20), outside(fmt.Sprint("ns-", r.IntN(2)), fmt.Sprint("web-", r.IntN(6)), int64(r.IntN(3)), r.IntN(1000)))
			answer := x.Put(s)
			if put[s.Key] = s; r.IntN(4) == 0 {
				answer = append(answer, x.Remove(s.Key)...)
				delete(put, s.Key)
				answer = slices.DeleteFunc(answer, func(o service.Service) bool { return o.Key == s.Key })
				delete(allowed, s.Key)
			}
			for _, o := range answer {
				allowed[o.Key] = o
			}
			room := map[string]int{"ns-0": MaxFrontends, "ns-1": MaxFrontends}
			for _, k := range slices.SortedFunc(maps.Keys(put), func(a, b service.Key) int { return put[a].Older(put[b]) }) {
				s := put[k]
				n := max(0, len(s.Ports)*(1+max(1, len(s.SourceRanges)))-OrdinaryFrontends)
				refused := n > room[k.Namespace]
				if !refused {
					room[k.Namespace] -= n
				}
				now := allowed[k]
				if has := len(now.Outside) == 2 && len(now.SourceRanges) == len(s.SourceRanges); has == refused || has != (len(now.Problems) == 0) {
					t.Fatalf("seed %d, step %d: %s with %d frontends is refused: %t, but is %+v", seed, step, k, n, refused, now)
				}
				if refused {
					refusals++
					want := fmt.Sprintf("none of its external and load balancer addresses: above %d they would be %d frontends", OrdinaryFrontends, n)
					if text := now.Problems[0].Message; now.Problems[0].Reason != "TooManyWays" || !strings.Contains(text, want) || len(s.Problems) > 0 {
						t.Fatalf("seed %d, step %d: %+v", seed, step, now.Problems)
					}
				}
			}
		}
		if refusals == 0 {
			t.Errorf("seed %d: nothing is refused", seed)
		}
		for k := range put {
			x.Remove(k)
		}
		if len(x.of) > 0 {
			t.Errorf("seed %d: left over: %v", seed, x.of)
		}
	}
}

// L3: a namespace may have 10 000 Services with a few frontends outside each.
func TestOrdinaryFrontendsAreNotBounded(t *testing.T) {
	var x Frontends
	for i := range 10_000 {
		s := times(5, outside("default", fmt.Sprint("web-", i), 0, 0))
		if got := x.Put(s); len(got) != 1 || len(got[0].Outside) != 2 {
			t.Fatalf("Service %d: %+v", i, got)
		}
	}
}
