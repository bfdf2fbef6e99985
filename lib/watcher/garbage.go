package watcher

import (
	"runtime/debug"
	"time"
)

const (
	// gcPercent is the garbage allowed in percent of the live heap (GOGC). With 100 000 pods, 550 MB are live.
	gcPercent = 25
	// startPercent is gcPercent while an engine starts: reading and comparing a large cluster leaves several times its size in
	// garbage, and with gcPercent half of the time of the start would be the collector's.
	startPercent = 100
	// ballast is the number of bytes added to the live heap, so that gcPercent of them is allowed in any case. Without it
	// a small cluster's watcher would collect its few megabytes many times during a burst. A percentage set after each
	// collection is no substitute: it applies too late to a heap that grows, and allows several times the garbage.
	ballast = 8 << 20
	// earlyPercent is gcPercent while long-lived rows are read: they take the place of the garbage of earlier ones,
	// instead of being spread over all garbage of reading.
	earlyPercent = 10
)

// limitGarbage sets Go's garbage collector. The returned ballast is never written, so it takes no memory.
func limitGarbage() []byte {
	debug.SetGCPercent(gcPercent)
	return make([]byte, ballast)
}

// expectRows sets the garbage collector for reading the database.
func expectRows() {
	debug.FreeOSMemory() // GOGC is relative to the remaining heap
	debug.SetGCPercent(earlyPercent)
	time.AfterFunc(calm, func() { debug.SetGCPercent(gcPercent) }) // after the comparison
}
