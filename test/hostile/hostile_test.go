package hostile_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ovn-k8s/test/hostile"
)

// bounds are the maximum costs of an object at 1 000 nodes and 5 000 pods. A pod joins few
// groups, whatever the policies are.
var bounds = struct{ object, pod hostile.Cost }{
	hostile.Cost{Rows: 20_000, Members: 100_000, Bytes: 10_000_000, Row: 2_000_000, Alloc: 100_000_000},
	hostile.Cost{Units: 10, Rows: 10, Members: 200, Bytes: 1_000_000, Alloc: 10_000_000},
}

// within reports whether a cost, except its time, is within a bound. A zero in the bound
// means no bound.
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

// draws lists the cases: as many as OVNK8S_HOSTILE says from the OVNK8S_HOSTILE_FROM-th on, or few.
func draws(t *testing.T) []string {
	number := func(name string) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), "0"))
		if err != nil || n < 0 {
			t.Fatalf("%s=%s: not a number", name, os.Getenv(name))
		}
		return n
	}
	if n := number("OVNK8S_HOSTILE"); n > 0 {
		from := number("OVNK8S_HOSTILE_FROM")
		return hostile.Names(from + n)[from:]
	}
	return append(hostile.Names(24), "policy/3377", "policy/11467", "pod/5", "service/137", "service/203", "service/245", "service/377", "service/2579") // these once exceeded a bound
}

// L1, L2, L3: no object of a tenant or a kubelet stops the engine or delays other pods.
func TestHostileObjects(t *testing.T) {
	draw := limitMemory(t, memoryLimit)
	cluster, err := hostile.NewCluster(1000, 5000)
	if err != nil {
		t.Fatal(err)
	}
	var results []hostile.Result
	size := cluster.Size()
	for _, name := range draws(t) {
		if !strings.HasPrefix(name, os.Getenv("OVNK8S_HOSTILE_KIND")) {
			continue
		}
		draw.Store(name)
		k, err := hostile.Draw(name)
		if err != nil {
			t.Fatal(err)
		}
		r := cluster.Try(k)
		if !within(r.Object, bounds.object) || !within(r.Removal, bounds.object) || !within(r.Pod, bounds.pod) {
			t.Errorf("%s: costs too much\n%s", k.Name, r)
		}
		if now := cluster.Size(); now != size {
			t.Errorf("%s: %d rows are left, %d were there before", k.Name, now, size)
			size = now
		}
		r.Case.Objects, r.Case.Restore = nil, nil
		results = append(results, r)
		t.Logf("draw %s: %s, a pod %v", name, r.Object.Max(r.Removal), r.Pod.Time)
	}
	slices.SortFunc(results, func(a, b hostile.Result) int { return cmp.Compare(worst(b), worst(a)) })
	for _, r := range results[:min(10, len(results))] {
		t.Logf("%s\n%s", r.Case.Name, r)
	}
}

// worst returns the share of its bounds used by a case.
func worst(r hostile.Result) (share float64) {
	for _, c := range []hostile.Cost{r.Object, r.Removal} {
		share = max(share, c.Time.Seconds(), float64(c.Alloc)/100e6, float64(c.Bytes)/10e6)
	}
	return max(share, r.Pod.Time.Seconds()/0.01/10)
}
