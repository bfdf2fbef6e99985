// Package failures reports the failures of units: once in the log, and to the owner of the object in an Event.
package failures

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

var (
	// ErrPending is the error of a unit that will succeed without intervention. It is not reported.
	ErrPending = errors.New("pending")
	// ErrOutage is the error of all units during an outage. One of them is tried often.
	ErrOutage = errors.New("outage")
)

// Mark gives an error a second identity for errors.Is, such as ErrPending.
func Mark(err, as error) error { return marked{err, as} }

type marked struct {
	error
	as error
}

// Unwrap returns the error itself.
func (m marked) Unwrap() error { return m.error }

// Is implements errors.Is.
func (m marked) Is(target error) bool { return target == m.as }

// A Reporter reports failures of units. Thousands may fail for one reason: a full subnet, a full disk, a missing
// permission. The log gets a line about the first one, and another line that there are more.
type Reporter struct {
	send func(func() []nb.Unit)
	tell func(u nb.Unit, err error) // writes an Event

	of      map[nb.Unit]failure
	units   map[string]int   // number of failing units by cause
	held    map[nb.Unit]bool // units to be retried after an outage
	lines   *lines
	probing bool              // a retry of one held unit is scheduled
	untold  map[nb.Unit]error // Events about them are to be written
	told    int               // Events during this eventPause
}

// At most eventBatch Events are written in eventPause: client-go drops those beyond 1 000 waiting for the API server
// (k8s.io/client-go/tools/record, maxQueuedEvents).
const (
	eventBatch = 200
	eventPause = 5 * time.Second
)

type failure struct {
	cause string
	named bool // in the log
}

// New returns a Reporter. The goroutine that calls the functions of send owns it. tell writes an Event about a unit.
func New(log *logrus.Entry, send func(func() []nb.Unit), tell func(nb.Unit, error)) *Reporter {
	return &Reporter{send: send, tell: tell, of: map[nb.Unit]failure{}, units: map[string]int{}, held: map[nb.Unit]bool{}, lines: newLines(log, send), untold: map[nb.Unit]error{}}
}

// add records the failure of a unit, and returns the number of units with this cause. It returns 0 for a known
// failure.
func (r *Reporter) add(u nb.Unit, cause string) int {
	if r.of[u].cause == cause {
		return 0
	}
	r.end(u)
	r.units[cause]++
	r.of[u] = failure{cause, r.units[cause] == 1}
	return r.units[cause]
}

// Has reports whether the failure of a unit was reported.
func (r *Reporter) Has(u nb.Unit) bool { _, ok := r.of[u]; return ok }

// end records the recovery of a unit. It reports whether the log has named its failure.
func (r *Reporter) end(u nb.Unit) bool {
	was, ok := r.of[u]
	if !ok {
		return false
	}
	delete(r.of, u)
	delete(r.held, u)
	delete(r.untold, u)
	if r.units[was.cause]--; r.units[was.cause] == 0 {
		delete(r.units, was.cause)
	}
	return was.named
}

// Report reports the failures and the recoveries of tried units.
func (r *Reporter) Report(tried []nb.Unit, failed map[nb.Unit]error) {
	over := false
	for _, u := range tried {
		if failed[u] != nil {
			continue
		}
		over = over || r.held[u]
		if r.end(u) {
			r.lines.say(u, "")
		}
	}
	for _, u := range slices.Sorted(maps.Keys(failed)) {
		err := failed[u]
		if errors.Is(err, ErrPending) || errors.Is(err, context.Canceled) {
			continue // it recovers without a report
		}
		n := r.add(u, kube.Cause(err))
		switch n {
		case 0:
			continue
		case 1:
			r.lines.say(u, err.Error())
		case 2:
			r.lines.say(u, `fails for the same reason as another unit: "ovs-appctl -t ovn-k8s-watcher reconcile/show" lists them all (with ovnkube: -t ovnkube)`)
		}
		if kube.Outage(err) {
			r.held[u] = true // no Event can be written either
			continue
		}
		if errors.Is(err, ErrOutage) {
			r.held[u] = true
		}
		r.untold[u] = err
	}
	r.tellNext()
	r.probe(over)
}

// tellNext writes Events about failures, policies first: a pod may be open to others without one. More follow after a while.
func (r *Reporter) tellNext() {
	if len(r.untold) == 0 || r.told == eventBatch {
		return
	}
	policies := func(u nb.Unit) int {
		if strings.HasPrefix(string(u), policy.UnitPrefix) {
			return 0
		}
		return 1
	}
	order := slices.SortedFunc(maps.Keys(r.untold), func(a, b nb.Unit) int { return cmp.Or(policies(a)-policies(b), cmp.Compare(a, b)) })
	if r.told == 0 {
		time.AfterFunc(eventPause, func() {
			r.send(func() []nb.Unit {
				r.told = 0
				r.tellNext()
				return nil
			})
		})
	}
	for _, u := range order[:min(len(order), eventBatch-r.told)] {
		r.tell(u, r.untold[u])
		delete(r.untold, u)
		r.told++
	}
}

// probeInterval is the interval of retries with one unit during an outage of the API server, or of the database's
// disk.
const probeInterval = 2 * time.Second

// probe retries all held units at the end of the outage, shown by the success of one of them. Until then it retries
// one of them after a while. Their own backoffs have become long by then.
func (r *Reporter) probe(over bool) {
	units := slices.Collect(maps.Keys(r.held))
	switch {
	case len(units) == 0:
	case over:
		r.send(func() []nb.Unit { return units })
	case !r.probing:
		r.probing = true
		time.AfterFunc(probeInterval, func() {
			r.send(func() []nb.Unit {
				r.probing = false
				return units[:1]
			})
		})
	}
}
