package watcher

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// gcPercent is the garbage allowed in percent of the live heap (GOGC). With many pods, half of Go's default saves
	// a tenth of the memory.
	gcPercent = 50
	// someGarbage is the garbage allowed in any case, in bytes. Without it a small cluster's watcher would collect
	// its few megabytes many times during a burst.
	someGarbage = 32 << 20
	// earlyPercent is gcPercent while long-lived rows are read: they take the place of the garbage of earlier ones,
	// instead of being spread over all garbage of reading.
	earlyPercent = 10
)

// percentFor is the GOGC for a live heap of so many bytes.
func percentFor(live uint64) int {
	return max(gcPercent, int(someGarbage*100/max(live, 1<<20)))
}

// A collector sets Go's garbage collector after each of its cycles.
type collector struct {
	mu    sync.Mutex
	early bool // see earlyPercent
	now   int  // the percentage set last
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

// adjust sets the percentage if it is far from the desired one: to set it stops the world.
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
