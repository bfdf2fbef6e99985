package watcher

import (
	"fmt"
	"testing"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher/records"
)

// L5: after a burst of router events, or after connecting to a database with 1 000 routers of gateways, the topology
// is read once.
func TestRouterEventsAreCoalesced(t *testing.T) {
	sent := 0
	e := &engine{}
	e.loop = reconcile.Loop[event, nb.Unit]{}
	h := records.RouterHandler(func() {
		if !e.topologyStale.Load() {
			sent++
		}
		e.topologyChanged()
	})
	gateway := &nbdb.LogicalRouter{Name: names.GatewayRouter("a")}
	for range 1000 {
		h.OnAdd(nbdb.LogicalRouterTable, gateway)
		h.OnDelete(nbdb.LogicalRouterTable, gateway)
	}
	if sent != 0 {
		t.Errorf("%d events of gateways' routers", sent)
	}
	router := func(i int) *nbdb.LogicalRouter {
		return &nbdb.LogicalRouter{Name: names.ClusterRouter, ExternalIDs: map[string]string{names.ClusterRouterTag: "yes", "ovn-k8s-node-a": fmt.Sprint(i)}}
	}
	h.OnUpdate(nbdb.LogicalRouterTable, router(1), router(1))
	if sent != 0 {
		t.Error("an update of other columns has the topology read")
	}
	for i := range 1000 {
		h.OnUpdate(nbdb.LogicalRouterTable, router(i), router(i+1))
	}
	if sent != 1 {
		t.Errorf("the topology is read %d times, want once", sent)
	}
}
