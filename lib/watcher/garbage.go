package watcher

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// gcPercent is how much garbage there may be beside what is in use (GOGC): with
	// many pods, half of Go's usual saves a tenth of the memory.
	gcPercent = 50
	// someGarbage is how much there may be in any case, in bytes. Without it a small
	// cluster's watcher would collect its few megabytes many times during a burst.
	someGarbage = 32 << 20
	// earlyPercent is gcPercent while rows are read that stay: they take the place of
	// the garbage of those before them, and are not spread over all that reading leaves.
	earlyPercent = 10
)

// percentFor is the GOGC with which there may be enough garbage beside so many bytes in use.
func percentFor(live uint64) int {
	return max(gcPercent, int(someGarbage*100/max(live, 1<<20)))
}

// A collector sets Go's garbage collector after each of its cycles.
type collector struct {
	mu    sync.Mutex
	early bool // see earlyPercent
	now   int  // what is set
}

// follow adjusts the collector from now on.
func (c *collector) follow() {
	c.adjust()
	runtime.AddCleanup(new(*byte), func(c *collector) { c.follow() }, c) // runs after the next cycle
}

func (c *collector) setEarly(early bool) {
	c.mu.Lock()
	c.early = early
	c.mu.Unlock()
	c.adjust()
}

// adjust sets the percentage if it is far from what it should be: to set it stops the world.
func (c *collector) adjust() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	c.mu.Lock()
	defer c.mu.Unlock()
	want := percentFor(sample[0].Value.Uint64())
	if c.early {
		want = earlyPercent
	}
	if 10*max(want, c.now) > 11*min(want, c.now) {
		debug.SetGCPercent(want)
		c.now = want
	}
}
