package nbsync_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/ovntest"
)

// L5: an upgrade replaces the router policies of each Service for replies by policies of nodes. Even with several
// transactions, the first one has all new rows, so that no reply is lost.
func TestAnUpgradeKeepsTheWayBack(t *testing.T) {
	for _, services := range []int{20, 800} {
		g := grounds(t, 10)
		former := map[nb.Unit][]nb.Row{}
		for i := range services {
			s, slice := numbered(i, 5, func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			})
			g.world.Put(s)
			g.world.Put(slice)
			u := nb.Unit("service/default/" + s.Name)
			rows, err := g.world.Rows(u)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows { // too many changes for one transaction with 800 Services
				row.Model.(*nbdb.LoadBalancer).Vips["192.0.2.99:80"] = ""
			}
			for e := range 5 {
				rows = append(rows, nb.Row{
					Table: nbdb.LogicalRouterPolicyTable, ID: fmt.Sprintf("%s/tcp/return4/n%d", u, e),
					Model: &nbdb.LogicalRouterPolicy{Priority: 3000, Action: "reroute", Nexthops: []string{"100.64.0.2"}, Match: fmt.Sprintf("ip4.src == 10.128.%d.%d", e, 3+i%200)},
					In:    []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
				})
			}
			former[u] = rows
		}
		apply(t, g.sync, former)
		before := g.records()
		g.apply(g.world.Units())
		after := slices.DeleteFunc(g.records()[len(before):], func(r ovntest.Record) bool { return r.Rows[nbdb.LogicalRouterPolicyTable] == 0 })
		var changed []int
		for _, r := range after {
			changed = append(changed, r.Rows[nbdb.LogicalRouterPolicyTable])
		}
		const made = 5 + 1 // a row of each node with endpoints, and the exemption for traffic inside
		switch {
		case services == 20 && !slices.Equal(changed, []int{5*services + made}):
			t.Errorf("%d Services: transactions with %v policies, want one", services, changed)
		case services == 800 && (len(changed) < 2 || changed[0] != made):
			t.Errorf("%d Services: transactions with %v policies, want first the %d new ones", services, changed, made)
		}
		owners, err := g.sync.Owners()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(owners, nb.Unit("return/n4")) || !slices.Contains(owners, nb.Unit("inside")) {
			t.Errorf("owners %v", owners)
		}
	}
}
