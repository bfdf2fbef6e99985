package records

import (
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/cache"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// Services returns the Selection of the Services in the database, so that a restart writes nothing, and counts their load
// balancers and those with a choice of endpoints by ports. Without Services, the Selection works with every datapath.
// Without a connection it returns ErrNotConnected.
func (r *Records) Services() (s loadbalancer.Selection, count, byPort int, err error) {
	rows := r.rows()
	source := r.db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ipv6_src")
	if rows == nil || rows != r.rows() { // else Allows knew no schema
		return s, 0, 0, ovsdb.ErrNotConnected
	}
	count, byPort = balancers(rows)
	return loadbalancer.Selection{IPv6Source: source, Userspace: count == 0 || byPort > 0}, count, byPort, nil
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
