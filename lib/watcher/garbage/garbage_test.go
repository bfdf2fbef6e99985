package garbage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// Issue 14, line 10: a burst of pods takes as much memory as its objects and rows justify, although the heap was
// small before.
func TestGarbageOfSmallClusters(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	kept := Limit()
	goal := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	grown := func(live uint64) uint64 { return live + live*percent/100 }
	if got := goal(); got < grown(ballast) || got > grown(ballast+(10<<20)) {
		t.Errorf("little in use: the heap may grow to %d bytes", got)
	}
	much := make([]byte, 32<<20)
	if got := goal(); got < grown(ballast+(32<<20)) || got > grown(ballast+(42<<20)) {
		t.Errorf("32 MB in use: the heap may grow to %d bytes", got)
	}
	runtime.KeepAlive(much)
	runtime.KeepAlive(kept)
}

// A start ends once, with the batch of its last unit.
func TestStart(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var s Start
	if s.Compared(5) {
		t.Error("over before it began")
	}
	Allow()
	if got := debug.SetMemoryLimit(-1); got != startMemory {
		t.Errorf("a start may take %d bytes", got)
	}
	s = 30
	for i, units := range []int{20, 9, 7, 7} {
		if over := s.Compared(units); over != (i == 2) {
			t.Errorf("batch %d: over is %v", i, over)
		}
	}
	if got := debug.SetGCPercent(100); got != percent {
		t.Errorf("%d %% of garbage are allowed after the start", got)
	}
	if got := debug.SetMemoryLimit(-1); got != memory {
		t.Errorf("%d bytes are allowed after the start", got)
	}
}
