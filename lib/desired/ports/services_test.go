package ports

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/test/objects"
)

// rival returns a Service with so many addresses outside, the same as those of other rivals.
func rival(i, addresses int) service.Service {
	return service.New(objects.Web(func(s *corev1.Service) {
		s.Name, s.Spec.ClusterIP = fmt.Sprintf("web-%03d", i), fmt.Sprintf("172.16.2.%d", i)
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		for a := range addresses {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("203.0.%d.%d", a/250, 1+a%250))
		}
	}))
}

// L3: of Services with the same address the first has it. A new or changed one affects no others. If the holder is
// removed, the next one is affected; the others are told the new holder only if they are few.
func TestRivalsAreTouchedWhenTheHolderChanges(t *testing.T) {
	for _, tt := range []struct{ rivals, told int }{{100, 0}, {MaxNamed, MaxNamed - 2}} {
		var c Services
		for i := range tt.rivals {
			if changed, told := c.Put(rival(i, 2)); len(changed)+len(told) != 0 && i != MaxNamed {
				t.Fatalf("rival %d changes %v, told are %v", i, changed, told)
			}
		}
		if changed, told := c.Put(rival(2, 2)); len(changed)+len(told) != 0 {
			t.Errorf("a change changes %v, told are %v", changed, told)
		}
		if changed, told := c.Remove(rival(0, 2).Key); len(told) != tt.told || !slices.Equal(changed, []service.Key{rival(1, 2).Key}) {
			t.Errorf("of %d, the holder's removal changes %v, told are %v", tt.rivals, changed, told)
		}
		if holder, _ := c.Holder(service.Claim{Addr: netip.MustParseAddr("203.0.0.1"), Protocol: corev1.ProtocolTCP, Port: 80}); holder != rival(1, 2).Key {
			t.Errorf("%v has it", holder)
		}
		r := service.Resolved{Service: rival(2, 2)}
		r.LoseTo(c.Lost(r.Key))
		if text := fmt.Sprint(r.Problems); strings.Contains(text, "by service default/web-001") != (tt.told > 0) || strings.Contains(text, "by another service") != (tt.told == 0) {
			t.Errorf("of %d: %s", tt.rivals, text)
		}
	}
}

// L3: Services are added, changed and removed. Services that gain or lose a claim are among the changed, and Services
// with another holder to name are told.
func TestRivalsThatChangeAreComplete(t *testing.T) {
	var all []service.Key
	for i := range 2 * MaxNamed {
		all = append(all, rival(i, 0).Key)
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		var c Services
		now := map[service.Key]service.Service{}
		for step := range 300 {
			before := map[service.Key]map[service.Claim]service.Key{}
			for _, k := range all {
				before[k] = c.Copied(k)
			}
			i := r.IntN(len(all))
			var changed, told []service.Key
			if r.IntN(3) == 0 {
				changed, told = c.Remove(all[i])
				delete(now, all[i])
			} else {
				s := rival(i, r.IntN(4))
				s.Created = int64(r.IntN(4))
				if s.Ports[0].NodePort = 0; r.IntN(2) == 0 {
					s.Outside = append(s.Outside, rival(r.IntN(len(all)), 0).ClusterIPs...) // of another rival
				}
				for _, a := range s.ExternalIPs {
					if r.IntN(3) == 0 { // of the load balancer
						s.Ingress = append(s.Ingress, service.Ingress{Addr: a})
					}
				}
				changed, told = c.Put(s)
				now[s.Key] = s
			}
			checkFirst(t, &c, all)
			checkHolders(t, &c, now)
			for k, was := range before {
				is := c.Copied(k)
				same := len(is) == len(was)
				for claim := range is {
					_, had := was[claim]
					same = same && had
				}
				switch {
				case k == all[i] || slices.Contains(changed, k):
				case !same:
					t.Fatalf("seed %d, step %d: %s lost %v, and loses %v, but is not among the changed %v", seed, step, k, was, is, changed)
				case !maps.Equal(was, is) && !slices.Contains(told, k):
					t.Fatalf("seed %d, step %d: %s lost %v, and loses %v, but is not told", seed, step, k, was, is)
				}
			}
		}
	}
}

// checkHolders compares the holders of all claims with the Services as they are, so the order of changes does not matter.
func checkHolders(t *testing.T, c *Services, now map[service.Key]service.Service) {
	t.Helper()
	assigned := func(s service.Service, a netip.Addr) bool {
		return slices.ContainsFunc(s.Ingress, func(in service.Ingress) bool { return in.Addr == a })
	}
	for claim, list := range c.wanted {
		var want service.Service
		for _, s := range now {
			has, had := slices.Contains(s.ClusterIPs, claim.Addr), slices.Contains(want.ClusterIPs, claim.Addr)
			is, was := assigned(s, claim.Addr), assigned(want, claim.Addr)
			switch {
			case !has && !slices.Contains(s.Outside, claim.Addr):
			case !want.Ours, has && !had, has == had && is && !was, has == had && is == was && s.Older(want) < 0:
				want = s
			}
		}
		if got, _ := c.Holder(claim); got != want.Key {
			t.Fatalf("%s of %d Services is %s's, want %s", claim, len(list), got, want.Key)
		}
	}
}

// L3: Services are edited at any time. An old one cannot take the address of a younger one's load balancer by its external
// IPs, before or after that has it. With external IPs alone the older one is first.
func TestOldServicesTakeNoAddressesOfLoadBalancers(t *testing.T) {
	old, young := rival(1, 0), rival(2, 1)
	old.Created, young.Created = 1, 2
	thief, victim, vip := rival(1, 1), young, young.Outside[0]
	thief.Created, victim.ExternalIPs, victim.Ingress = 1, nil, []service.Ingress{{Addr: vip}}
	claim := service.Claim{Addr: vip, Protocol: corev1.ProtocolTCP, Port: 80}
	for _, tt := range []struct {
		name string
		puts []service.Service
		want service.Key
	}{
		{"before the edit", []service.Service{old, victim}, victim.Key},
		{"after the edit", []service.Service{old, victim, thief}, victim.Key},
		{"an external IP that is there first", []service.Service{thief, victim}, victim.Key},
		{"external IPs alone", []service.Service{old, young, thief}, thief.Key},
		{"a load balancer with an external IP", []service.Service{thief, young, victim}, victim.Key},
		{"a load balancer without its address", []service.Service{thief, victim, young}, thief.Key},
	} {
		var c Services
		for _, s := range tt.puts {
			c.Put(s)
		}
		if got, _ := c.Holder(claim); got != tt.want {
			t.Errorf("%s: %s has it, want %s", tt.name, got, tt.want)
		}
	}
}

// checkFirst compares At with the claims.
func checkFirst(t *testing.T, c *Services, all []service.Key) {
	t.Helper()
	first := map[netip.Addr]map[service.Key]bool{}
	for a := range c.Outside() {
		first[a] = map[service.Key]bool{}
	}
	for _, k := range all {
		for _, claim := range c.claimed[k] {
			if holder, _ := c.Holder(claim); holder == k && c.wanted[claim][0].right != service.Allocated && claim.Addr.IsValid() {
				first[claim.Addr][k] = true
			}
		}
	}
	for a, want := range first {
		got := map[service.Key]bool{}
		for k := range c.At(a) {
			got[k] = true
		}
		if c.owner(a) == (service.Key{}) && !maps.Equal(got, want) {
			t.Fatalf("%s: first are %v, want %v", a, got, want)
		}
	}
}

// L1: of a hundred Services with the same address, one may have load balancers there. All of them were asked, for each
// address after each change.
func TestOnlyTheFirstMayHoldAnAddress(t *testing.T) {
	var c Services
	for i := range 100 {
		c.Put(rival(i, 2))
	}
	for i := range 100 {
		if got := slices.Collect(c.At(netip.MustParseAddr("203.0.0.1"))); !slices.Equal(got, []service.Key{rival(i, 0).Key}) {
			t.Fatalf("after %d removals: %v", i, got)
		}
		c.Remove(rival(i, 2).Key)
	}
}

// L3: a hundred Services have the same thousand addresses. The removal of the first cost 4 GB: each claim listed each
// rival, and each rival had a problem for each claim.
func TestRivalsOfManyClaims(t *testing.T) {
	var c Services
	for i := range 100 {
		c.Put(rival(i, 1000))
	}
	cost := allocated(func() {
		changed, told := c.Remove(rival(0, 1000).Key)
		for _, k := range append(changed, told...) {
			r := service.Resolved{Service: rival(1, 1000)}
			r.LoseTo(c.Lost(k))
		}
	})
	if cost > 2<<20 {
		t.Errorf("%d bytes are allocated", cost)
	}
	r := service.Resolved{Service: rival(7, 1000)}
	if r.LoseTo(c.Lost(r.Key)); len(r.Problems) != 10 || r.Untold != 1000-10 {
		t.Errorf("%d problems and %d more", len(r.Problems), r.Untold)
	}
}

// L3: the frontends of a Service that lost the addresses of another cost what it has, not what it lost: one event may
// compute those of a hundred such Services.
func TestLostClaimsAreNotCopied(t *testing.T) {
	var c Services
	cost := map[int]uint64{}
	for _, n := range []int{20, 900} {
		c.Put(rival(0, n))
		s := rival(1, n)
		s.ExternalIPs = s.Outside
		c.Put(s)
		r, left := service.Resolved{Service: s}, 0
		cost[n] = allocated(func() {
			r.LoseTo(c.Lost(r.Key))
			left = len(r.Frontends(service.Network{}))
		})
		if r.Lost.Number != n*len(s.Ports) || left > 3 {
			t.Errorf("of %d addresses, %d claims are lost, and %d frontends are left", n, r.Lost.Number, left)
		}
	}
	if cost[900] > 2*cost[20] {
		t.Errorf("bytes allocated by numbers of lost addresses: %v", cost)
	}
}

// allocated returns the number of bytes allocated by f.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A Service with a health check that comes after memory was released, as when the right to list Services was missing at
// first.
func TestAServiceAfterCompact(t *testing.T) {
	var x Services
	x.Compact()
	x.Put(service.Service{Key: service.Key{Namespace: "default", Name: "web"}, Ours: true, HealthCheckNodePort: 30001})
	if ports := x.nodePorts(service.Key{Namespace: "default", Name: "web"}); len(ports) != 1 {
		t.Errorf("ports of every node: %v", ports)
	}
}
