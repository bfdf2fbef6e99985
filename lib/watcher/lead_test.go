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
	"ovn-k8s/lib/watcher/core"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// After the loss of the Lease nothing of the old World stays in memory: the next engine starts with a World of its
// own.
func TestALostLeaseLeavesNothingInMemory(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer central.Close()
	var w Watcher
	// No process listens at the API server's port.
	cfg := config.Config{NB: []string{central.NB}, APIServer: "http://127.0.0.1:1"}
	l, err := w.connect(t.Context(), cfg, func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer l.cluster.Close()
	defer l.db.Close()
	var worlds []weak.Pointer[desired.World]
	for range 3 {
		worlds = append(worlds, leadOnce(t, &w, l))
	}
	deadline := time.Now().Add(time.Minute)
	for i, world := range worlds {
		for world.Value() != nil {
			if time.Now().After(deadline) {
				t.Fatalf("World %d is still in memory", i)
			}
			runtime.GC()
		}
	}
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
