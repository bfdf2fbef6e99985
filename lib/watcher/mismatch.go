package watcher

import (
	"time"

	"ovn-k8s/lib/nb"
)

// Events about mismatches: at most mismatchBatch at once, the others after mismatchPause.
// A conversion to dual stack makes one for each running pod.
const (
	mismatchBatch = 200
	mismatchPause = 5 * time.Second
)

// mismatches are the pods with an Event, and its message.
type mismatches struct {
	told  map[nb.Unit]string
	later map[nb.Unit]bool // an Event is to be written
}

func newMismatches() mismatches { return mismatches{map[nb.Unit]string{}, map[nb.Unit]bool{}} }

// tellMismatches writes an Event about each running pod among units with other addresses than assigned, once. The
// log names the first one.
func (e *engine) tellMismatches(units []nb.Unit) {
	told := 0
	for _, u := range units {
		problem := e.world.Pods.Mismatch(u)
		switch {
		case problem == nil:
			delete(e.mismatches.told, u)
			delete(e.mismatches.later, u)
			continue
		case e.mismatches.told[u] == problem.Message:
			continue
		case told == mismatchBatch:
			e.postpone(u)
			continue
		}
		if told++; told == 1 {
			e.log.WithField("unit", u).Warn(problem)
		}
		e.mismatches.told[u] = problem.Message
		e.tell(u, problem)
	}
	if told > 1 {
		e.log.WithField("pods", told).Warn(`more pods run with other addresses than they are assigned: "ovs-appctl -t ` + Program + ` pod/show" names them`)
	}
}

// postpone checks a pod again after a while.
func (e *engine) postpone(u nb.Unit) {
	if len(e.mismatches.later) == 0 {
		time.AfterFunc(mismatchPause, func() {
			e.send(func() []nb.Unit {
				units := make([]nb.Unit, 0, len(e.mismatches.later))
				for u := range e.mismatches.later {
					units = append(units, u)
				}
				clear(e.mismatches.later)
				e.tellMismatches(units)
				return nil
			})
		})
	}
	e.mismatches.later[u] = true
}
