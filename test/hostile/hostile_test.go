package hostile_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"testing"

	"ovn-k8s/test/hostile"
)

// bounds are what no object may cost, at 1 000 nodes and 5 000 pods. A pod that
// starts joins few groups, whatever policies there are.
var bounds = struct{ object, pod hostile.Cost }{
	hostile.Cost{Rows: 20_000, Members: 100_000, Bytes: 10_000_000, Row: 2_000_000, Alloc: 100_000_000},
	hostile.Cost{Units: 10, Rows: 10, Members: 200, Bytes: 1_000_000, Alloc: 10_000_000},
}

// within reports whether a cost, but its time, is within a bound. What a bound does
// not name is not bounded.
func within(c, bound hostile.Cost) bool {
	for _, f := range [][2]int{
		{c.Units, bound.Units}, {c.Rows, bound.Rows}, {c.Members, bound.Members}, {c.Bytes, bound.Bytes}, {c.Row, bound.Row}, {c.Alloc, bound.Alloc},
	} {
		if f[1] > 0 && f[0] > f[1] {
			return false
		}
	}
	return true
}

// draws lists the seeds of the cases: as many as OVNK8S_HOSTILE says, or few.
func draws(t *testing.T) (seeds []uint64) {
	s := os.Getenv("OVNK8S_HOSTILE")
	if s == "" {
		s, seeds = "36", []uint64{3377} // which exceeded a bound once
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatalf("OVNK8S_HOSTILE=%s: not a number", s)
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	return seeds
}

// L1, L2: whatever a tenant writes, the engine goes on, and so do other pods.
func TestHostileObjects(t *testing.T) {
	cluster, err := hostile.NewCluster(1000, 5000)
	if err != nil {
		t.Fatal(err)
	}
	kinds := hostile.Kinds()
	all := hostile.KindNames()
	only := os.Getenv("OVNK8S_HOSTILE_KIND")
	var results []hostile.Result
	size := cluster.Size()
	for _, seed := range draws(t) {
		kind := all[seed%uint64(len(all))]
		if only != "" {
			kind = only
		}
		s := hostile.NewSource(seed)
		r := cluster.Try(kinds[kind](s))
		if !within(r.Object, bounds.object) || !within(r.Removal, bounds.object) || !within(r.Pod, bounds.pod) {
			t.Errorf("seed %d: %s: costs too much\n  comes %s\n  goes  %s\n  pod   %s\n  %.300s", seed, r.Case.Name, r.Object, r.Removal, r.Pod, r.Problem)
		}
		if now := cluster.Size(); now != size {
			t.Fatalf("seed %d: %s: %d rows are left, %d were there before", seed, r.Case.Name, now, size)
		}
		r.Case.Name = "seed " + strconv.FormatUint(seed, 10) + ": " + r.Case.Name
		r.Case.Objects = nil
		results = append(results, r)
	}
	slices.SortFunc(results, func(a, b hostile.Result) int { return cmp.Compare(worst(b), worst(a)) })
	for _, r := range results[:min(10, len(results))] {
		t.Logf("%s\n  comes %s\n  goes  %s\n  pod   %s\n  %.200s", r.Case.Name, r.Object, r.Removal, r.Pod, r.Problem)
	}
}

// worst is how much of its bounds a case takes.
func worst(r hostile.Result) (share float64) {
	for _, c := range []hostile.Cost{r.Object, r.Removal} {
		share = max(share, c.Time.Seconds(), float64(c.Alloc)/100e6, float64(c.Bytes)/10e6)
	}
	return max(share, r.Pod.Time.Seconds()/0.01/10)
}
