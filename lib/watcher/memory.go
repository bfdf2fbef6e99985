package watcher

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"ovn-k8s/lib/nb"
)

const (
	// muchWork is the number of changed rows to justify a garbage collection: they leave about as much garbage as the
	// rows and their events take.
	muchWork = 1000
	// calm is the time without changes before a collection.
	calm = 3 * time.Second
)

// A sweeper releases memory after much work. Go's collector would do so minutes later, because nothing allocates any
// more by then.
type sweeper struct {
	sweep func()
	rows  int         // changed since the last time
	timer *time.Timer // set once there are enough
}

// worked records the number of rows or objects added or removed at once.
func (s *sweeper) worked(rows int) {
	if rows == 0 {
		return
	}
	if s.timer != nil && !s.timer.Stop() { // the sweep has started
		s.rows, s.timer = 0, nil
	}
	if s.rows += rows; s.rows >= muchWork {
		s.timer = time.AfterFunc(calm, s.sweep)
	}
}

// compact releases the memory of removed objects and rows.
func (e *engine) compact() []nb.Unit {
	e.network.Compact()
	e.notes.Compact()
	if e.applier.Compact() {
		return nil // reconnected follows, and compacts again
	}
	go debug.FreeOSMemory() // takes a while, and ends by itself
	return nil
}

// showMemory prints the memory of the process, in the form of ovs-vswitchd(8).
func (w *Watcher) showMemory([]string) (string, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("goroutines:%d heap-kB:%d system-kB:%d\n", runtime.NumGoroutine(), m.HeapAlloc>>10, (m.Sys-m.HeapReleased)>>10), nil
}
