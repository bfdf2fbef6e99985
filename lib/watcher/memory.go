package watcher

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"ovn-k8s/lib/nb"
)

const (
	// muchWork is how many rows must have changed for the garbage to be worth
	// collecting: it is about as much as the rows and their events.
	muchWork = 1000
	// calm is how long nothing must have changed meanwhile.
	calm = 3 * time.Second
)

// A sweeper has memory given back after much work. Go's collector would get to it
// minutes later, since nothing is allocated any more by then.
type sweeper struct {
	sweep func()
	rows  int         // changed since the last time
	timer *time.Timer // set once there are enough
}

// worked is told how many rows or objects came in or went out at once.
func (s *sweeper) worked(rows int) {
	if rows == 0 {
		return
	}
	if s.timer != nil && !s.timer.Stop() { // it is done
		s.rows, s.timer = 0, nil
	}
	if s.rows += rows; s.rows >= muchWork {
		s.timer = time.AfterFunc(calm, s.sweep)
	}
}

// compact gives back the memory of what is gone.
func (e *engine) compact() []nb.Unit {
	e.world.Compact()
	e.notes.compact()
	if e.northbound.Shrunk() {
		go e.renew() // and then again
		return nil
	}
	go debug.FreeOSMemory() // takes a while, and ends by itself
	return nil
}

// renew reads the database into a cache that has no room for what is gone.
func (e *engine) renew() {
	e.log.Info("reading the Northbound database again: most of its rows are gone")
	debug.FreeOSMemory() // the percentage is of what is left
	e.links.collector.setEarly(true)
	time.AfterFunc(calm, func() { e.links.collector.setEarly(false) }) // when all is compared
	if err := e.links.db.Renew(context.Background()); err != nil {
		e.log.Warn(err)
	}
}

// showMemory says what the process has, in the form of ovs-vswitchd(8).
func (w *Watcher) showMemory([]string) (string, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("goroutines:%d heap-kB:%d system-kB:%d\n", runtime.NumGoroutine(), m.HeapAlloc>>10, (m.Sys-m.HeapReleased)>>10), nil
}
