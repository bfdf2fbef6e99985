package nbsync

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A row with few or many parents joins the missing ones and leaves the others, in any order.
func TestARowWithManyParents(t *testing.T) {
	const table, column, row = nbdb.LogicalSwitchTable, "load_balancer", "row"
	for _, n := range []int{1, fewLocations - 1, fewLocations, fewLocations + 1, 10 * fewLocations} {
		p := &Plan{have: newRowIndex(), mutates: map[location]*members{}}
		found, r := map[tableID]string{}, nb.Row{Table: nbdb.LoadBalancerTable, ID: row, Model: &nbdb.LoadBalancer{}}
		want := map[location]members{}
		for i := range n + 2 { // the first is left, the last is joined
			id, at := fmt.Sprint("n", i), location{table, fmt.Sprint("uuid", i), column}
			found[tableID{table, id}] = at.uuid
			p.have.of[table].rows[at.uuid] = &nbdb.LogicalSwitch{UUID: at.uuid, ExternalIDs: map[string]string{names.Owner: "cluster"}}
			if i > 0 {
				r.In = append(r.In, nb.Ref{Table: table, ID: id, Column: column})
			}
			if i <= n {
				p.have.referrers[row] = append(p.have.referrers[row], at)
			}
		}
		want[location{table, "uuid0", column}] = members{remove: []string{row}}
		want[location{table, fmt.Sprint("uuid", n+1), column}] = members{add: []string{row}}
		rand.Shuffle(len(r.In), func(i, j int) { r.In[i], r.In[j] = r.In[j], r.In[i] })
		before := slices.Clone(p.have.referrers[row])
		if detail := p.place(r, row, found); len(detail) != 2 {
			t.Errorf("%d parents: %q", n, detail)
		}
		got := map[location]members{}
		for at, m := range p.mutates {
			got[at] = *m
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(location{}, members{})); diff != "" {
			t.Errorf("%d parents (-want +got):\n%s", n, diff)
		}
		if !slices.Equal(before, p.have.referrers[row]) {
			t.Errorf("%d parents: the index has changed", n)
		}
	}
}
