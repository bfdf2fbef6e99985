// Package garbage sets Go's garbage collector for a watcher: its rows and objects are most of the memory, and change little.
package garbage

import (
	"runtime/debug"
	"time"
)

const (
	// percent is the garbage allowed in percent of the live heap (GOGC). With 100 000 pods, 550 MB are live.
	percent = 25
	// startPercent is percent while an engine starts: reading and comparing a large cluster leaves several times its size in
	// garbage, and with percent half of the time of the start would be the collector's.
	startPercent = 100
	// startMemory is the memory beyond which a start collects more garbage than startPercent says: the machine of a large
	// cluster's watcher needs no more memory for its start than for its work.
	startMemory = 800 << 20
	// ballast is the number of bytes added to the live heap, so that percent of them is allowed in any case. Without it
	// a small cluster's watcher would collect its few megabytes many times during a burst. A percentage set after each
	// collection is no substitute: it applies too late to a heap that grows, and allows several times the garbage.
	ballast = 20 << 20
	// earlyPercent is percent while long-lived rows are read: they take the place of the garbage of earlier ones,
	// instead of being spread over all garbage of reading.
	earlyPercent = 10
)

// memory is the limit of the environment variable GOMEMLIMIT, or none.
var memory = debug.SetMemoryLimit(-1)

// Limit limits the garbage. The returned ballast is never written, so it takes no memory.
func Limit() []byte {
	debug.SetGCPercent(percent)
	return make([]byte, ballast)
}

// ExpectRows prepares for reading the database again.
func ExpectRows() {
	debug.FreeOSMemory() // GOGC is relative to the remaining heap
	debug.SetGCPercent(earlyPercent)
	time.AfterFunc(calm, func() { debug.SetGCPercent(percent) }) // after the comparison
}

// Allow allows much garbage during a start, until Restrict, or the end of a Start.
func Allow() {
	debug.SetGCPercent(startPercent)
	debug.SetMemoryLimit(min(memory, startMemory))
}

// Restrict ends Allow.
func Restrict() {
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(memory)
}

const (
	// Much is the number of changed rows to justify a garbage collection: they leave about as much garbage as the
	// rows and their events take.
	Much = 1000
	// calm is the time without changes before a collection.
	calm = 3 * time.Second
)

// A Sweeper releases memory after much work. Go's collector would do so minutes later, because nothing allocates any
// more by then.
type Sweeper struct {
	// Sweep releases memory, in a goroutine of its own.
	Sweep func()

	rows  int         // changed since the last time
	timer *time.Timer // set once there are enough
}

// Worked records the number of rows or objects added or removed at once.
func (s *Sweeper) Worked(rows int) {
	if rows == 0 {
		return
	}
	if s.timer != nil && !s.timer.Stop() { // the sweep has started
		s.rows, s.timer = 0, nil
	}
	if s.rows += rows; s.rows >= Much {
		s.timer = time.AfterFunc(calm, s.Sweep)
	}
}

// A Start is the number of units not compared since the start of an engine, about.
type Start int

// Compared records the size of a batch. With the last one the start is over: it reports that, and limits the garbage again.
func (s *Start) Compared(units int) (over bool) {
	before := *s
	*s = max(0, before-Start(units))
	if over = before > 0 && *s == 0; over {
		Restrict()
	}
	return over
}
