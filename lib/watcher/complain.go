package watcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

// plaints are why units fail, as far as it was said. Thousands may fail for one
// reason: a full subnet, a disk that is full, a right that is missing. The log
// gets a line about the first and another that there are more.
type plaints struct {
	of    map[nb.Unit]plaint
	units map[string]int   // how many units have a cause
	held  map[nb.Unit]bool // units that an outage holds up
	lines map[nb.Unit]*lines
}

type plaint struct {
	cause string
	named bool // in the log
}

func newPlaints() plaints {
	return plaints{map[nb.Unit]plaint{}, map[string]int{}, map[nb.Unit]bool{}, map[nb.Unit]*lines{}}
}

// add records why a unit fails, and returns how many units do so by now. It
// returns 0 if this is nothing new.
func (p plaints) add(u nb.Unit, cause string) int {
	if p.of[u].cause == cause {
		return 0
	}
	p.end(u)
	p.units[cause]++
	p.of[u] = plaint{cause, p.units[cause] == 1}
	return p.units[cause]
}

// has reports whether it was said that a unit fails.
func (p plaints) has(u nb.Unit) bool { _, ok := p.of[u]; return ok }

// end records that a unit does not fail any more. It reports whether the log has
// said that it did.
func (p plaints) end(u nb.Unit) bool {
	was, ok := p.of[u]
	if !ok {
		return false
	}
	delete(p.of, u)
	delete(p.held, u)
	if p.units[was.cause]--; p.units[was.cause] == 0 {
		delete(p.units, was.cause)
	}
	return was.named
}

// An object may be good and bad in turns, as often as its author likes. The first linesAtOnce lines about a unit are logged
// at once. Others count, and the last of them is logged after linesEvery.
const (
	linesAtOnce = 2
	linesEvery  = time.Minute
)

// lines are those about a unit since linesEvery.
type lines struct {
	logged, left int
	last         string // why it fails, "" if it is fine
}

// say logs why a unit fails, or that it is fine if there is no reason why not.
func (e *engine) say(u nb.Unit, why string) {
	l := e.plaints.lines[u]
	if l == nil {
		l = &lines{}
		e.plaints.lines[u] = l
		e.sumUpLater(u)
	}
	if l.last = why; l.logged == linesAtOnce {
		l.left++
		return
	}
	l.logged++
	e.logLine(u, why, "")
}

func (e *engine) logLine(u nb.Unit, why, more string) {
	if log := e.log.WithField("unit", u); why == "" {
		log.Info("recovered" + more)
	} else {
		log.Warn(why + more)
	}
}

func (e *engine) sumUpLater(u nb.Unit) {
	time.AfterFunc(linesEvery, func() {
		e.send(func() []nb.Unit {
			e.sumUp(u)
			return nil
		})
	})
}

// sumUp logs the last line about a unit of those that were left out.
func (e *engine) sumUp(u nb.Unit) {
	l := e.plaints.lines[u]
	if l.left == 0 {
		delete(e.plaints.lines, u)
		return
	}
	e.logLine(u, l.last, fmt.Sprintf(" (changes since the last line: %d)", l.left))
	l.left, l.logged = 0, linesAtOnce
	e.sumUpLater(u)
}

// complain says of each unit once why it fails: in the log, and to the owner of
// the object in an Event. It is the Synced of the loop.
func (e *engine) complain(tried []nb.Unit, failed map[nb.Unit]error) {
	e.sweep.worked(e.work.Rows)
	over := false
	for _, u := range tried {
		if failed[u] != nil {
			continue
		}
		over = over || e.plaints.held[u]
		if e.plaints.end(u) {
			e.say(u, "")
		}
	}
	for _, u := range slices.Sorted(maps.Keys(failed)) {
		err := failed[u]
		if errors.Is(err, ErrPending) || errors.Is(err, context.Canceled) || errors.Is(err, errLapsed) {
			continue // it goes on by itself
		}
		n := e.plaints.add(u, kube.Cause(err))
		switch n {
		case 0:
			continue
		case 1:
			e.say(u, err.Error())
		case 2:
			e.say(u, `fails for the same reason as another unit: "ovs-appctl -t `+Program+` reconcile/show" lists them all`)
		}
		if kube.Outage(err) {
			e.plaints.held[u] = true // and no Event can be written
			continue
		}
		if errors.Is(err, ErrOutage) {
			e.plaints.held[u] = true
		}
		e.tell(u, err)
	}
	e.probe(over)
}

// probeInterval is how often one of the units is tried again that an outage holds
// up: of the API server, or of the database's disk.
const probeInterval = 2 * time.Second

// probe tries again all units that an outage holds up if it is over, which one of
// them has shown, and otherwise one of them after a while. Their own backoffs have
// become long meanwhile.
func (e *engine) probe(over bool) {
	units := slices.Collect(maps.Keys(e.plaints.held))
	switch {
	case len(units) == 0:
	case over:
		e.send(func() []nb.Unit { return units })
	case !e.probing:
		e.probing = true
		time.AfterFunc(probeInterval, func() {
			e.send(func() []nb.Unit {
				e.probing = false
				return units[:1]
			})
		})
	}
}

// tell writes an Event about the object behind a unit.
func (e *engine) tell(u nb.Unit, err error) {
	about := e.worlds.Object(u)
	if about == nil {
		return
	}
	reason := "NetworkNotReady"
	var problem *desired.Problem
	if errors.As(err, &problem) {
		reason = problem.Reason
	}
	e.links.cluster.Warn(about, reason, err.Error())
}
