package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// After any change of Services and of the network, kept lists are those of new ones, and an unchanged Service keeps its slice.
func TestListsAreThoseOfNewOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	external := netip.MustParseAddr("198.51.100.1")
	draw := func() *Resolved {
		i := r.IntN(250)
		return &Resolved{Service: Service{
			Key: Key{"default", fmt.Sprint("web-", i)}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 30, 0, byte(i)})},
			ExternalIPs: []netip.Addr{external}[:r.IntN(2)], Ports: []Port{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: uint16(r.IntN(2) * 30080)}},
		}}
	}
	networks := []Network{{}, {Hops: []netip.Addr{external}}, {Hosts: []netip.Addr{external}}, {Inside: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/16")}}}
	var kept Lists
	var outer Outer
	var services []*Resolved
	before := map[*Resolved][]Frontend{}
	for step := range 500 {
		services = slices.Clone(services)
		if at := r.IntN(len(services) + 1); at < len(services) && r.IntN(2) == 0 {
			services = slices.Delete(services, at, at+1)
		} else {
			services = slices.Insert(services, at, draw())
		}
		n := networks[r.IntN(len(networks))]
		got, want := kept.Of(services, n), AllFrontends(services, n)
		if !slices.EqualFunc(got, want, slices.Equal[[]Frontend]) {
			t.Fatalf("step %d: %v, want %v", step, got, want)
		}
		if got, want := slices.Collect(outer.Of(got).Outside()), slices.Collect(want.Outside()); !slices.Equal(got, want) {
			t.Fatalf("step %d: outside are %v, want %v", step, got, want)
		}
		now := map[*Resolved][]Frontend{}
		for i, s := range services {
			was, there := before[s]
			if there && slices.Equal(was, got[i]) && &was[0] != &got[i][0] {
				t.Fatalf("step %d: the frontends of %s were made again", step, s.Key)
			}
			now[s] = got[i]
		}
		before = now
	}
}
