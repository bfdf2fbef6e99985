package watcher

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/watcher/core"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// After the loss of the Lease nothing of the old World stays in memory: the next engine starts with a World of its
// own.
func TestALostLeaseLeavesNothingInMemory(t *testing.T) {
	var w Watcher
	l := unreachable(t, &w)
	var worlds []weak.Pointer[desired.World]
	for range 3 {
		worlds = append(worlds, leadOnce(t, &w, l))
	}
	for _, world := range worlds {
		freed(t, world)
	}
}

// A watcher on standby has not the World of its former term in memory.
func TestAnEndedTermLeavesNothingInMemory(t *testing.T) {
	var w Watcher
	l := unreachable(t, &w)
	term, err := l.db.Lead(t.Context(), "host/1-1/1", "ns/lease", func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	tenure := &tenure{ctx: ctx, cancel: cancel, w: &w, connections: l, log: w.log("watcher")}
	world := func() weak.Pointer[desired.World] {
		r := tenure.start(term)
		r.stop(ovsdb.ErrDeposed)
		<-r.ended
		return weak.Make(r.engine.network.(core.World).World)
	}()
	freed(t, world)
	cancel(nil)
	tenure.end()
}

// freed waits until a World is not in memory.
func freed(t *testing.T, world weak.Pointer[desired.World]) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for world.Value() != nil {
		if time.Now().After(deadline) {
			t.Fatal("a World is still in memory")
		}
		runtime.GC()
	}
}

// unreachable returns the connections of a watcher without an API server.
func unreachable(t *testing.T, w *Watcher) *connections {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(central.Close)
	// No process listens at the API server's port.
	cfg := config.Config{NB: []string{central.NB}, APIServer: "http://127.0.0.1:1"}
	l, err := w.connect(t.Context(), cfg, func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cluster.Close)
	t.Cleanup(l.db.Close)
	return l
}

// leadOnce runs an engine until it works, and returns its World.
func leadOnce(t *testing.T, w *Watcher, l *connections) weak.Pointer[desired.World] {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := w.newEngine(l, l.db)
	works := make(chan struct{})
	e.send(func() []nb.Unit {
		close(works)
		return nil
	})
	ended := make(chan error)
	go func() { ended <- e.run(ctx) }()
	<-works
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the engine ended with %v", err)
	}
	return weak.Make(e.network.(core.World).World)
}
