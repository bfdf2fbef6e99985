package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
	"ovn-k8s/test/policymodel"
)

// T6: rows refer to rows of the same unit or of earlier steps, so that no transaction waits for a later one when an
// empty database is filled.
func TestRowsReferToFormerSteps(t *testing.T) {
	type row struct{ table, id string }
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 6))
		w := NewWorld()
		for range 300 {
			randomChange(t, r, w)
			randomPolicyChange(policymodel.Source{Rand: r}, w)
			randomServiceChange(t, r, w)
		}
		w.Allocate()
		owner := map[row]nb.Unit{}
		rows := map[nb.Unit][]nb.Row{}
		for _, u := range w.Units() {
			rows[u], _ = w.Rows(u)
			for _, x := range rows[u] {
				owner[row{x.Table, x.ID}] = u
			}
		}
		for u, all := range rows {
			for _, x := range all {
				for _, ref := range slices.Concat(x.In, x.Has) {
					if o := owner[row{ref.Table, ref.ID}]; o != "" && o != u && step(o) >= step(u) {
						t.Errorf("seed %d: %s %s of %s refers to a row of %s", seed, x.Table, x.ID, u, o)
					}
				}
			}
			if !Known(u) {
				t.Errorf("%s is in no step", u)
			}
		}
	}
}

// T6: guards come before pods.
func TestGuardsComeBeforePods(t *testing.T) {
	units := []nb.Unit{"pod/a/b", "policy/a/b", "group/x", guard.Unit, policy.NodeUnit("n"), "service/a/b", topology.NodeUnit("n"), topology.ClusterUnit, "chassis/c"}
	slices.SortFunc(units, Compare)
	const want = "[cluster node/n chassis/c guard node-policy/n group/x policy/a/b pod/a/b service/a/b]"
	if got := fmt.Sprint(units); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
