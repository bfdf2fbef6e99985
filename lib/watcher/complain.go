package watcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

// plaints are the reported failures of units. Thousands may fail for one reason: a full subnet, a full disk, a
// missing permission. The log gets a line about the first one, and another line that there are more.
type plaints struct {
	of    map[nb.Unit]plaint
	units map[string]int   // number of failing units by cause
	held  map[nb.Unit]bool // units to be retried after an outage
	lines map[nb.Unit]*lines
}

type plaint struct {
	cause string
	named bool // in the log
}

func newPlaints() plaints {
	return plaints{map[nb.Unit]plaint{}, map[string]int{}, map[nb.Unit]bool{}, map[nb.Unit]*lines{}}
}

// add records the failure of a unit, and returns the number of units with this cause. It returns 0 for a known
// failure.
func (p plaints) add(u nb.Unit, cause string) int {
	if p.of[u].cause == cause {
		return 0
	}
	p.end(u)
	p.units[cause]++
	p.of[u] = plaint{cause, p.units[cause] == 1}
	return p.units[cause]
}

// has reports whether the failure of a unit was reported.
func (p plaints) has(u nb.Unit) bool { _, ok := p.of[u]; return ok }

// end records the recovery of a unit. It reports whether the log has named its failure.
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

// An object may alternate between good and bad, as often as its author likes. The first linesAtOnce lines about a
// unit are logged at once. Others count, and the last of them is logged after linesEvery.
const (
	linesAtOnce = 2
	linesEvery  = time.Minute
)

// lines counts the lines about a unit during linesEvery.
type lines struct {
	logged, left int
	last         string // the failure, "" after recovery
}

// say logs the failure of a unit, or its recovery if why is "".
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

// sumUp logs the last of the omitted lines about a unit.
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

// complain reports the failure of each unit once: in the log, and to the owner of the object in an Event. It is the
// Synced of the loop.
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
			continue // it recovers without a report
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
			e.plaints.held[u] = true // no Event can be written either
			continue
		}
		if errors.Is(err, ErrOutage) {
			e.plaints.held[u] = true
		}
		e.tell(u, err)
	}
	e.probe(over)
}

// probeInterval is the interval of retries with one unit during an outage of the API server, or of the database's
// disk.
const probeInterval = 2 * time.Second

// probe retries all held units at the end of the outage, shown by the success of one of them. Until then it retries
// one of them after a while. Their own backoffs have become long by then.
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
	var problem *feature.Problem
	if errors.As(err, &problem) {
		reason = problem.Reason
	}
	e.links.cluster.Warn(about, reason, err.Error())
}
