package service

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/test/objects"
)

// L3: if endpoints are in many slices, some in several and in different states, the first in the order of addresses
// are used. They are found without sorting all.
func TestTheFirstOfManyEndpoints(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		var all []Slice
		best := [2]map[netip.Addr]State{{}, {}}
		ready, n := r.IntN(10), 300*(1+r.IntN(20))
		for i := range 100 {
			sl := Slice{Name: fmt.Sprint("slice-", i), Ports: []SlicePort{{"http", corev1.ProtocolTCP, 8080}}}
			for range 200 {
				e, f := r.IntN(n), i%2
				a := []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(e / 250), byte(e % 250)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", e))}[f]
				h := Host{Addr: a, State: State(1 + min(1, r.IntN(10)/max(1, ready)))}
				if was, ok := best[f][a]; !ok || h.State < was {
					best[f][a] = h.State
				}
				sl.Endpoints = append(sl.Endpoints, h)
			}
			all = append(all, sl)
		}
		var want []netip.Addr
		for f := range best {
			addrs := slices.SortedFunc(maps.Keys(best[f]), func(a, b netip.Addr) int {
				return cmp.Or(cmp.Compare(best[f][a], best[f][b]), a.Compare(b))
			})
			addrs = addrs[:min(len(addrs), MaxEndpoints)]
			slices.SortFunc(addrs, netip.Addr.Compare)
			want = append(want, addrs...)
		}
		es, more := collect(Port{Name: "http", Protocol: corev1.ProtocolTCP}, all, 20_000)
		var got []netip.Addr
		for _, e := range es {
			got = append(got, e.Addr)
			if best[ipnet.Family(e.Addr)][e.Addr] != e.State {
				t.Fatalf("seed %d: %v is in state %d", seed, e.Addr, e.State)
			}
		}
		for f := range best {
			if more[f] != (len(best[f]) > MaxEndpoints) {
				t.Errorf("seed %d: of %d there are more than the first: %t", seed, len(best[f]), more[f])
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d endpoints, want %d", seed, len(got), len(want))
		}
	}
	all := make([]Slice, 300)
	for i := range all {
		all[i] = Slice{Name: fmt.Sprint("slice-", i), Ports: []SlicePort{{"http", corev1.ProtocolTCP, 8080}}}
		for n := range 333 {
			all[i].Endpoints = append(all[i].Endpoints, Host{Addr: netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i % 250), byte(n % 250)}), State: Serving})
		}
	}
	if cost := allocated(func() { collect(Port{Name: "http", Protocol: corev1.ProtocolTCP}, all, 99_900) }); cost > 500_000 {
		t.Errorf("%d bytes are allocated for the first 1 000 of 99 900 endpoints", cost)
	}
}

// L3: ports missing in all slices are searched in a bounded number of slices.
func TestPortsThatNoSliceHas(t *testing.T) {
	all := make([]Slice, 300)
	for i := range all {
		all[i] = Slice{Name: fmt.Sprint("slice-", i), Ports: []SlicePort{{"other", corev1.ProtocolTCP, 8080}}, Endpoints: []Host{{State: Serving}}}
	}
	r := Resolve(New(objects.Many(10_000)), all)
	if text := fmt.Sprint(r.Problems); r.Served != maxCandidates/300 || !strings.Contains(text, "its 300 endpoint slices have more than 100000 in all") {
		t.Errorf("%d ports are served: %s", r.Served, text)
	}
}

// L3: the list of 48 000 frontends takes little more than its own size.
func TestManyFrontends(t *testing.T) {
	s := objects.Many(12_000)
	s.Spec.Type, s.Spec.ClusterIPs = corev1.ServiceTypeNodePort, append(s.Spec.ClusterIPs, "fd02::1")
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = int32(20_000 + i)
	}
	r := Resolved{Service: New(s)}
	n := 0
	cost := allocated(func() { n = len(r.Frontends(Network{})) })
	if n != 48_000 || cost > 5_000_000 {
		t.Errorf("%d frontends, %d bytes are allocated", n, cost)
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
