package records

import (
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/cache"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// Services returns the Selection of the Services in the database, so that a restart writes nothing, and counts their load
// balancers and those with a choice of endpoints by ports. Without Services, the Selection works with every datapath.
func (r *Records) Services() (s loadbalancer.Selection, count, byPort int) {
	if rows := r.rows(); rows != nil {
		count, byPort = balancers(rows)
	}
	s = loadbalancer.Selection{IPv6Source: r.db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ipv6_src"), Userspace: count == 0 || byPort > 0}
	return s, count, byPort
}

// balancers counts the load balancers of Services, and those with a choice of endpoints by ports.
func balancers(rows *cache.TableCache) (count, byPort int) {
	for _, m := range rows.Table(nbdb.LoadBalancerTable).RowsShallow() {
		lb := m.(*nbdb.LoadBalancer)
		if !strings.HasPrefix(lb.ExternalIDs[names.Owner], service.UnitPrefix) {
			continue
		}
		count++
		if slices.Contains(lb.SelectionFields, nbdb.LoadBalancerSelectionFieldsTpSrc) {
			byPort++
		}
	}
	return count, byPort
}
