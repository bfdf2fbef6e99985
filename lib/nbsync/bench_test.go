package nbsync_test

import (
	"fmt"
	"testing"

	"ovn-k8s/lib/desired"
)

// big is a world of 100 nodes with n pods.
func big(b *testing.B, n int) *desired.World {
	w := desired.NewWorld()
	nodes := make([]int, 100)
	for i := range nodes {
		nodes[i] = i
	}
	w.Put(cluster(b, nodes...))
	for i := range n {
		w.Put(newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%100)))
	}
	w.Settle()
	return w
}

// BenchmarkPlan is a comparison that finds nothing to do: of all of 10 000 pods,
// and of one among them.
func BenchmarkPlan(b *testing.B) {
	_, _, s := open(b)
	w := big(b, 10000)
	apply(b, s, rowsOf(w, w.Units()))
	for _, n := range []int{1, 10000} {
		units := w.Units()[:n]
		b.Run(fmt.Sprint("units=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan, err := s.Plan(rowsOf(w, units))
				if err != nil || len(plan.Changes) > 0 {
					b.Fatal(plan.Changes, err)
				}
			}
		})
	}
}
