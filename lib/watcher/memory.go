package watcher

import (
	"runtime/debug"
	"time"
)

const (
	// muchWork is how many rows must have changed for the garbage to be worth
	// collecting: it is about as much as the rows and their events.
	muchWork = 1000
	// calm is how long nothing must have changed meanwhile.
	calm = 3 * time.Second
)

// A sweeper gives memory back after much work. Go's collector would get to it
// minutes later, since nothing is allocated any more by then.
type sweeper struct {
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
		s.timer = time.AfterFunc(calm, debug.FreeOSMemory)
	}
}
