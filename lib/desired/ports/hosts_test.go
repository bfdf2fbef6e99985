package ports

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/test/objects"
)

// L3: Services, also those with health checks, get and lose ports of every node, and hosts get other addresses. Services
// with other Taken ports are among the changed.
func TestNodePortsTakenAtHosts(t *testing.T) {
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		var x Services
		all, put, taken := map[service.Key]map[service.Claim]service.Key{}, map[service.Key]bool{}, 0
		for step := range 300 {
			if r.IntN(20) == 0 {
				x.SetHosts(Hosts{addr(1 + r.IntN(3)), addr(4)})
				for k := range all { // these are known otherwise
					all[k] = x.Taken(k)
				}
			}
			i := r.IntN(8)
			s := service.New(objects.Web(func(s *corev1.Service) {
				s.Name, s.Spec.ClusterIP = fmt.Sprint("web-", i), fmt.Sprintf("172.16.2.%d", i)
				s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
				s.Spec.Ports[0].Port = int32(30080 + r.IntN(2))
				for a := range r.IntN(3) {
					s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, addr(1+(i+a)%5).String())
				}
				if s.Spec.Type = corev1.ServiceTypeNodePort; r.IntN(2) == 0 {
					s.Spec.Ports[0].NodePort = int32(30080 + r.IntN(2))
				}
			}))
			s.HealthCheckNodePort = []uint16{0, 30081}[r.IntN(2)]
			changed, _ := x.Put(s)
			if put[s.Key] = true; r.IntN(3) == 0 {
				more, _ := x.Remove(s.Key)
				changed = append(changed, more...)
				delete(put, s.Key)
			}
			for k, was := range all {
				is := x.Taken(k)
				taken += len(is)
				if all[k] = is; k != s.Key && !maps.Equal(was, is) && !slices.Contains(changed, k) {
					t.Fatalf("seed %d, step %d: %s has other taken ports %v, was %v, but is not among %v", seed, step, k, is, was, changed)
				}
			}
			all[s.Key] = x.Taken(s.Key)
		}
		if taken == 0 {
			t.Errorf("seed %d: nothing is taken", seed)
		}
		for k := range put {
			x.Remove(k)
		}
		if len(x.atHosts) > 0 {
			t.Errorf("seed %d: left over: %v", seed, x.atHosts)
		}
	}
}

// L3: a NodePort concerns no Service with the same port at an external IP of no host.
func TestNodePortsConcernServicesAtHosts(t *testing.T) {
	var x Services
	at := func(name, ip, external string) service.Service {
		return service.New(objects.Web(func(s *corev1.Service) {
			s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.ExternalIPs = name, ip, []string{ip}, []string{external}
			s.Spec.Ports[0].Port = 30080
		}))
	}
	here, there := at("here", "172.16.2.1", "192.0.2.1"), at("there", "172.16.2.2", "203.0.113.1")
	x.Put(here)
	x.Put(there)
	x.SetHosts(Hosts{netip.MustParseAddr("192.0.2.1")})
	door := service.New(objects.Web(objects.NodePort))
	door.Ports[0].NodePort = 30080
	if changed, _ := x.Put(door); !slices.Equal(changed, []service.Key{here.Key}) || len(x.Taken(here.Key)) != 1 || len(x.Taken(there.Key)) != 0 {
		t.Errorf("the NodePort concerns %v", changed)
	}
	x.SetHosts(Hosts{netip.MustParseAddr("203.0.113.1")})
	if changed, _ := x.Remove(door.Key); !slices.Equal(changed, []service.Key{there.Key}) {
		t.Errorf("the NodePort's removal concerns %v", changed)
	}
}
