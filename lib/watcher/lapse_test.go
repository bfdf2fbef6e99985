package watcher

import (
	"net/netip"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
	"ovn-k8s/test/need"
	"ovn-k8s/test/ovntest"
)

// apart returns an engine of a watcher without a reachable API server. It is not run.
func apart(t *testing.T) *engine {
	t.Helper()
	need.Nothing(t, need.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(central.Close)
	var w Watcher
	l, err := w.connect(t.Context(), config.Config{NB: []string{central.NB}, APIServer: "http://127.0.0.1:1"}, func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cluster.Close)
	t.Cleanup(l.db.Close)
	return newEngine(l, w.log)
}

// T9: the units written with the Lease, without it, and before all objects are read.
func TestWhatIsWrittenWithoutTheLease(t *testing.T) {
	e := apart(t)
	e.world.Put(largeTopology(t, 2))
	gateway, other := topology.GatewayUnit("node-0000.example.com"), (pod.Key{Namespace: "a", Name: "b"}).Unit()
	onLAN := answer.Unit(netip.MustParseAddr("198.51.100.9"))
	written := func(what string, gateways, addresses, all bool) {
		t.Helper()
		if e.writes(gateway) != gateways || e.writes(onLAN) != addresses || e.writes(other) != all {
			t.Errorf("%s: gateways %v, addresses on LANs %v, others %v", what, e.writes(gateway), e.writes(onLAN), e.writes(other))
		}
	}
	written("nothing is known", false, false, false)
	if units := e.southAsked(); len(units) != 0 {
		t.Errorf("gateways are judged before the topology is known: %v", units)
	}
	e.found(topologyKind)
	written("addresses of Nodes are not known", false, false, false)
	if units := e.found(e.nodes); len(units) != 2 {
		t.Errorf("once gateways can be judged, these are: %v", units)
	}
	written("pods are not known", true, false, false)
	clear(e.missing)
	written("without the Lease", true, true, false)
	e.full = true
	written("with the Lease", true, true, true)
	e.lapsed()
	written("the Lease is lost", true, true, false)

	// A failed unit without another try is not reported as recovered.
	e.plaints.add(other, "a reason")
	failed := e.reconcile([]nb.Unit{other})(t.Context())
	e.complain([]nb.Unit{other}, failed)
	if failed[other] == nil || !e.plaints.has(other) {
		t.Errorf("a unit that waits for the Lease: %v", failed)
	}
}

// T1: a process that was frozen writes no annotation: before each it checks that its Lease is still valid.
func TestNoAnnotationWithoutTheLease(t *testing.T) {
	e := apart(t)
	k := pod.Key{Namespace: "a", Name: "b"}
	stale := &note{uid: "u", value: "v", all: map[string]string{"k": "v"}}
	e.notes.notes[k] = stale
	e.notes.jobs.put(job{k.Unit(), k, stale})
	done := make(chan []nb.Unit, 1)
	e.notes.send = func(ev event) { done <- ev() }
	if !e.notes.patch(t.Context()) {
		t.Fatal("no job")
	}
	if units := <-done; len(units) != 0 || stale.err != nil || len(e.notes.notes) != 0 {
		t.Errorf("the API server was asked: %v, units %v", stale.err, units)
	}
}
