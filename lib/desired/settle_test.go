package desired

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/nb"
)

// manySlices puts n slices of 100 endpoints of the Service web, on 10 nodes.
func manySlices(w *World, n int, each func(touched []nb.Unit)) {
	for i := range n {
		var endpoints []string
		for e := range 100 {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.7@node-%d", i, e, e%10))
		}
		each(w.Put(newSlice(fmt.Sprint("web-", i), "web", endpoints...)))
	}
}

// L1: slices of a large Service that come together cost what there is to read, not its square.
func TestSlicesThatComeTogetherAreResolvedOnce(t *testing.T) {
	cost := map[int]uint64{}
	for _, n := range []int{50, 200} {
		w := manyNodes(t, 10)
		w.Put(newService("web", 1))
		cost[n] = allocated(func() {
			manySlices(w, n, func([]nb.Unit) {})
			w.Allocate()
		})
	}
	if cost[200] > 6*cost[50] {
		t.Errorf("50 slices allocate %d bytes, 200 slices %d", cost[50], cost[200])
	}
}

// Slices that come together have the rows of slices that come one by one, and all units with other rows are returned,
// also when a Service becomes large, and small again.
func TestSlicesThatComeTogether(t *testing.T) {
	for _, local := range []bool{false, true} {
		s := newService("web", 1)
		if local {
			s = localService("web", 1)
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeNodePort, []string{"198.20.0.77"}
		}
		together, single := manyNodes(t, 10), manyNodes(t, 10)
		together.Put(s)
		single.Put(s)
		check := func(what string, before map[nb.Unit]string, touched []nb.Unit) {
			t.Helper()
			was := map[nb.Unit]bool{}
			for _, u := range append(touched, together.Allocate()...) {
				was[u] = true
			}
			now := state(together, nil)
			if want := state(single, nil); !maps.Equal(now, want) {
				t.Fatalf("local %v, %s: rows differ:\n%v\n%v", local, what, now, want)
			}
			for u, text := range now {
				if before[u] != text && !was[u] {
					t.Errorf("local %v, %s: %s has other rows", local, what, u)
				}
			}
		}
		before, touched := state(together, nil), []nb.Unit{}
		manySlices(together, 20, func(units []nb.Unit) { touched = append(touched, units...) })
		manySlices(single, 20, func([]nb.Unit) { single.Allocate() })
		check("all slices", before, touched)
		before, touched = state(together, nil), nil
		for i := range 19 {
			gone := newSlice(fmt.Sprint("web-", i), "web")
			touched = append(touched, together.Remove(gone)...)
			single.Remove(gone)
			single.Allocate()
		}
		check("one slice", before, touched)
		if len(together.Services.stale) != 0 {
			t.Errorf("stale are %v", together.Services.stale)
		}
	}
}

// A large Service that loses endpoints on nodes and is removed, or becomes another, before Allocate: the nodes without
// its endpoints are returned, too.
func TestSettledAfterTheServiceChanged(t *testing.T) {
	for what, change := range map[string]func(w *World) []nb.Unit{
		"removed":   func(w *World) []nb.Unit { return w.Remove(localService("web", 1)) },
		"not local": func(w *World) []nb.Unit { return w.Put(newService("web", 1)) },
	} {
		w := manyNodes(t, 10)
		w.Put(localService("web", 1))
		manySlices(w, 20, func([]nb.Unit) {})
		w.Put(newSlice("web-few", "web", "10.99.0.7@node-0"))
		w.Allocate()
		before, touched := state(w, nil), []nb.Unit{}
		for i := range 20 {
			touched = append(touched, w.Put(newSlice(fmt.Sprint("web-", i), "web", manyOn("node-0", i)...))...)
		}
		touched = append(touched, change(w)...)
		touched = append(touched, w.Allocate()...)
		was := map[nb.Unit]bool{}
		for _, u := range touched {
			was[u] = true
		}
		now, changed := state(w, nil), 0
		for u, text := range before {
			if now[u] == text {
				continue
			}
			if changed++; !was[u] {
				t.Errorf("%s: %s has other rows", what, u)
			}
		}
		if changed < 10 {
			t.Errorf("%s: only %d units have other rows", what, changed)
		}
	}
}

// manyOn are 100 endpoints on a node.
func manyOn(node string, i int) (endpoints []string) {
	for e := range 100 {
		endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.7@%s", i, e, node))
	}
	return endpoints
}
