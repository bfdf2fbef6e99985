package records

import (
	"maps"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// FollowToken calls changed when external_ids of NB_Global change, until stop. No other column is monitored.
func (r *Records) FollowToken(changed func()) (stop func()) {
	return r.db.Handle(&cache.EventHandlerFuncs{
		AddFunc: func(table string, _ model.Model) {
			if table == nbdb.NBGlobalTable {
				changed()
			}
		},
		UpdateFunc: func(table string, _, _ model.Model) {
			if table == nbdb.NBGlobalTable {
				changed()
			}
		},
	})
}

// FollowTopology calls changed when the record of the topology changes, until stop.
func (r *Records) FollowTopology(changed func()) (stop func()) {
	return r.db.Handle(RouterHandler(changed))
}

// RouterHandler calls changed when a cluster router appears, disappears, or has other external_ids. There may be
// thousands of other routers, those of gateways.
func RouterHandler(changed func()) cache.EventHandler {
	ids := func(m model.Model) map[string]string {
		if r, ok := m.(*nbdb.LogicalRouter); ok && r.ExternalIDs[names.ClusterRouterTag] == "yes" {
			return r.ExternalIDs
		}
		return nil
	}
	return &cache.EventHandlerFuncs{
		AddFunc: func(_ string, row model.Model) {
			if ids(row) != nil {
				changed()
			}
		},
		UpdateFunc: func(_ string, before, after model.Model) {
			if !maps.Equal(ids(before), ids(after)) {
				changed()
			}
		},
		DeleteFunc: func(_ string, row model.Model) {
			if ids(row) != nil {
				changed()
			}
		},
	}
}
