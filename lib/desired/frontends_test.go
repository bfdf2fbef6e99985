package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/nb"
)

// ranged is a Service with 10 ports at an address of a load balancer, for so many source ranges.
func ranged(name string, number, ranges, created int) *corev1.Service {
	s := withPorts(name, number, 10, created)
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, ""
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("203.0.113.%d", number)}}
	for i := range ranges {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("20.%d.%d.0/24", i/250, i%250))
	}
	return s
}

// outsideOf is the number of frontends outside of a Service, those with source ranges once for each range.
func outsideOf(w *World, name string) int {
	r, _ := w.Services.Service(nb.Unit("service/default/" + name))
	return r.Outer()
}

// L3: watchers and hosts refuse the addresses outside of the same Services of a namespace. A host, whose World has no nodes
// and no gateways, had elements for each address, port and source range of all Services, also of those refused in OVN.
func TestHostsRefuseTheSameFrontends(t *testing.T) {
	watcher, host := manyNodes(t, 3), NewWorld()
	put := func(s *corev1.Service) []nb.Unit {
		host.Put(s)
		return watcher.Put(s)
	}
	sum := func() (all int) {
		for i := range 5 {
			name := fmt.Sprint("web-", i)
			if a, b := outsideOf(watcher, name), outsideOf(host, name); a != b {
				t.Errorf("%s: the watcher has %d frontends outside, a host %d", name, a, b)
			}
			all += outsideOf(host, name)
		}
		return all
	}
	for i := range 5 {
		put(ranged(fmt.Sprint("web-", i), i, 900, i))
	}
	if n := sum(); n != 2*9000 {
		t.Errorf("%d frontends outside", n)
	}
	if got := problemOf(watcher, "web-4"); !strings.Contains(got, "older services of namespace default leave less of 20000") {
		t.Errorf("the youngest: %s", got)
	}
	if rows := rowsOf(t, watcher, "service/default/web-1"); !strings.Contains(fmt.Sprint(rows), "203.0.113.1") {
		t.Errorf("an older one is refused: %v", rows)
	}
	rival := withPorts("rival", 9, 10, 9)
	rival.Spec.ExternalIPs, rival.Namespace = []string{"203.0.113.4"}, "elsewhere"
	if put(rival); !strings.Contains(fmt.Sprint(rowsOf(t, watcher, "service/elsewhere/rival")), "203.0.113.4:80") {
		t.Error("a Service without addresses outside keeps another one from its address")
	}
	if touched := put(ranged("web-0", 0, 1, 0)); !slices.Contains(touched, nb.Unit("service/default/web-2")) {
		t.Errorf("an older one has fewer, and touches %v", touched)
	}
	if n := sum(); n != 2*9000+10 {
		t.Errorf("%d frontends outside", n)
	}
}

// L3: the choice of refused addresses depends on the objects only, not on the order of events, and each affected unit is
// touched.
func TestRefusedFrontendsDoNotDependOnOrder(t *testing.T) {
	walk := randomWalk{seeds: 2, steps: 60, stream: 8, refusal: fmt.Sprintf("leave less of %d", ports.MaxFrontends)}
	walk.check(t, func(r *rand.Rand, name string, number int) (*corev1.Service, *discoveryv1.EndpointSlice) {
		s := ranged(name, number, pick(r, 0, 900, 900, 900), r.IntN(3))
		s.Status.LoadBalancer.Ingress[0].IP = fmt.Sprintf("198.20.0.%d", 101+r.IntN(3)) // gateways answer for these
		return s, portsOn(name, 2, 1, r.IntN(2))
	})
}

// L3: a NodePort costs as much beside Services with the same port at an external IP as without them. Each event computed all
// of these again: a hundred with all ports of nodes took most of a second.
func TestANodePortBesideExternalIPs(t *testing.T) {
	cost := map[int]uint64{}
	for _, n := range []int{0, 50} {
		w := manyNodes(t, 3)
		for i := range n {
			s := withPorts(fmt.Sprint("web-", i), i, 300, i)
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
			for p := range s.Spec.Ports {
				s.Spec.Ports[p].Port, s.Spec.Ports[p].NodePort = int32(30000+p), 0
			}
			s.Spec.ExternalIPs = []string{fmt.Sprintf("203.0.113.%d", i)}
			w.Put(s)
		}
		s := withPorts("door", 60, 1, 0)
		s.Spec.Ports[0].NodePort = 30123
		var touched []nb.Unit
		cost[n] = allocated(func() { touched = w.Put(s) })
		for _, u := range touched {
			if strings.HasPrefix(string(u), "service/default/web") {
				t.Errorf("%s is touched", u)
			}
		}
	}
	t.Logf("bytes allocated by Services with external IPs: %v", cost)
	if cost[50] > 2*cost[0] {
		t.Errorf("bytes allocated by Services with external IPs: %v", cost)
	}
}
