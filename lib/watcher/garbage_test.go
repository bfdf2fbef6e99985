package watcher

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGarbageOfSmallClusters(t *testing.T) {
	for _, tt := range []struct {
		live uint64
		want int
	}{{0, 3200}, {16 << 20, 200}, {64 << 20, 50}, {1 << 30, 50}} {
		if got := percentFor(tt.live); got != tt.want {
			t.Errorf("%d bytes in use: %d %%, want %d", tt.live, got, tt.want)
		}
	}
}

// The collector follows the size of the live heap, up and down.
func TestTheCollectorFollows(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var c collector
	c.follow()
	set := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.now
	}
	eventually := func(what string, cond func(percent int) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !cond(set()); runtime.GC() {
			if time.Now().After(end) {
				t.Fatalf("%s: %d %%", what, set())
			}
		}
	}
	much := make([]byte, 128<<20)
	eventually("much in use", func(percent int) bool { return percent == gcPercent })
	runtime.KeepAlive(much)
	much = nil
	eventually("little in use", func(percent int) bool { return percent > gcPercent })
	c.setEarly(true)
	eventually("reading", func(percent int) bool { return percent == earlyPercent })
	c.setEarly(false)
	eventually("read", func(percent int) bool { return percent > gcPercent })
}
