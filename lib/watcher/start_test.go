package watcher

import (
	"maps"
	"slices"
	"testing"

	"ovn-k8s/lib/nb"
)

// Issue 14, line 5: a start is over when each unit was compared once, also where all rows are in the database already.
// Until then the process may have the garbage of a start.
func TestAStartEnds(t *testing.T) {
	e := idleEngine(t)
	nodes := twoGateways(t)
	clear(nodes.Gateways)
	e.network.Put(nodes)
	want := map[nb.Unit][]nb.Row{}
	for _, u := range e.all() {
		rows, err := e.worlds.Rows(u)
		if err != nil {
			t.Fatal(err)
		}
		want[u] = rows
	}
	if _, failed := e.applier.Apply(t.Context(), want); len(failed) > 0 {
		t.Fatal(failed)
	}
	if owners, err := e.applier.Owners(); err != nil || len(owners) == 0 {
		t.Fatalf("units with rows: %v, %v", owners, err)
	}
	for kind := range e.may.missing {
		e.found(kind)
	}
	if e.start == 0 {
		t.Error("it is over before anything was compared")
	}
	e.synced(slices.Collect(maps.Keys(want)), nil)
	if e.start != 0 {
		t.Errorf("all of %d units are compared, and it waits for %d more", len(want), e.start)
	}
}
