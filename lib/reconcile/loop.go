// Package reconcile runs a level-triggered reconcile loop over dirty keys, with batches, retries and a periodic
// resync.
package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Loop records events, which mark keys as dirty, and calls Sync with batches of dirty keys. Run calls all functions
// from its own goroutine, so they need no locks among each other; only the work returned by Sync runs in another
// goroutine.
//
// Keys marked during an interval or during work go into the next batch. A failed key is retried after its backoff, or
// as soon as an event marks it.
//
// Events of one line are recorded in their order. Lines take turns, and the loop records for a bounded time before it
// goes on, so cheap events do not wait until many expensive ones of another line are recorded.
type Loop[E any, K cmp.Ordered] struct {
	// Record stores one event and returns the keys it makes dirty. Events are recorded in the order of Send.
	Record func(E) []K
	// Sync plans the update of dirty keys and returns the work to do, of any duration. One work runs at a time. It
	// returns the failed keys, with their errors.
	Sync func(dirty []K) (work func(context.Context) (failed map[K]error))
	// Compute computes what Sync needs of one key, in the order of Compare. After 100 ms no further key is begun, except
	// to reach one left by the former call. Sync gets the keys computed; the others stay dirty. nil means that Sync gets
	// all keys.
	Compute func(K)
	// Related reports whether the work of a key should be done in one call of Sync with keys before it: it is begun within
	// 2 s. nil means of none.
	Related func(K) bool
	// MaxBatch bounds the keys of a call of Sync, and so the memory of a comparison; 0 means no bound. The first keys
	// by Compare are taken.
	MaxBatch int
	// Compare orders keys; nil means their natural order.
	Compare func(a, b K) int
	// Synced is called with the result of each work, unless it is nil.
	Synced func(tried []K, failed map[K]error)
	// OnDirty is called with dirty keys at once, even during work or an interval, and before Sync. It does the steps
	// that need no batch, and returns further dirty keys. It may be nil.
	OnDirty func(dirty []K) (more []K)
	// MinInterval is the time to gather keys between the end of one work and the next call of Sync. waiting is the
	// number of keys marked during the work. nil means 0.
	MinInterval func(waiting int) time.Duration
	// MaxWait is how long a dirty key may wait for related keys while no interval is under way. It does not extend a
	// running interval. nil means 0.
	MaxWait func(K) time.Duration
	// Quiet ends an interval early, when no key arrived for max(Quiet, MinInterval/5, 8 × mean inter-arrival time). 0
	// means never.
	Quiet time.Duration
	// Resync is the period after which All keys are marked dirty; 0 means never.
	Resync time.Duration
	// All lists all keys, for Resync.
	All func() []K

	mu     sync.Mutex // guards the fields below
	events lines[E]
	failed map[K]*failure[K]
	// retries has the failed keys, except for those in the running call of Sync and some of those in the next.
	retries retries[K]
	// Events recorded by the present call of gather, keys waiting, and keys in the running call.
	recording, waiting, syncing int

	wake chan struct{}
	once sync.Once
}

func (l *Loop[E, K]) init() {
	l.once.Do(func() { l.failed, l.wake = map[K]*failure[K]{}, make(chan struct{}, 1) })
}

// Send queues events in the line without a name. It never blocks, and may be called by any goroutine.
func (l *Loop[E, K]) Send(events ...E) { l.SendTo("", events...) }

// SendTo is Send to a line.
func (l *Loop[E, K]) SendTo(line string, events ...E) {
	l.init()
	l.mu.Lock()
	l.events.add(line, events)
	l.mu.Unlock()
	l.wakeUp()
}

func (l *Loop[E, K]) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// Run runs the loop until ctx is done, waits for the running work, and returns ctx's error.
func (l *Loop[E, K]) Run(ctx context.Context) error {
	l.init()
	var resync <-chan time.Time
	if l.Resync > 0 {
		t := time.NewTicker(l.Resync)
		defer t.Stop()
		resync = t.C
	}
	waiting := batch[K]{compare: l.Compare, compute: l.Compute, related: l.Related, most: l.MaxBatch}
	var wait gathering
	var done chan result[K] // nil: no work is under way
	defer func() {
		if done != nil {
			<-done
		}
	}()
	for {
		var fresh []K
		var finished *result[K]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		case <-resync:
			fresh = l.All()
		case <-l.nextRetry():
		case <-wait.end():
		case r := <-done:
			finished = &r
		}
		if finished == nil { // select may have chosen another case
			select {
			case r := <-done:
				finished = &r
			default:
			}
		}
		if finished != nil {
			done = nil
			l.finish(*finished)
			wait.worked(l.intervalAfter(&waiting))
		}
		keys, maxWait := l.gather(&waiting, fresh)
		wait.arrived(keys, newInterval(maxWait, l.Quiet), done != nil)
		if done == nil && !wait.underWay() && waiting.len() > 0 {
			done = l.begin(ctx, waiting.take())
		}
		l.count(waiting.len(), done != nil)
	}
}

// intervalAfter is the interval after work during which the keys of waiting were marked. Keys left by Compute need none.
func (l *Loop[E, K]) intervalAfter(waiting *batch[K]) interval {
	if l.MinInterval == nil || waiting.late {
		return interval{}
	}
	length, quiet := l.MinInterval(waiting.len()), l.Quiet
	if quiet > 0 {
		quiet = max(quiet, length/quietPart)
	}
	i := newInterval(length, quiet)
	if waiting.len() == 1 { // if there are several, more are on their way
		i.arrived(1)
	}
	return i
}

// count updates the numbers for Status.
func (l *Loop[E, K]) count(waiting int, syncing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recording, l.waiting = 0, waiting
	if !syncing {
		l.syncing = 0
	}
}

// A result is the outcome of one call of Sync.
type result[K cmp.Ordered] struct {
	tried  []K
	failed map[K]error
}

// begin calls Sync and starts its work.
func (l *Loop[E, K]) begin(ctx context.Context, keys []K) chan result[K] {
	l.mu.Lock()
	l.syncing = len(keys)
	for _, k := range keys {
		if f := l.failed[k]; f != nil {
			l.retries.remove(f)
		}
	}
	l.mu.Unlock()
	work := l.Sync(keys)
	done := make(chan result[K], 1)
	go func() { done <- result[K]{keys, work(ctx)} }()
	return done
}

// finish records the failed keys.
func (l *Loop[E, K]) finish(r result[K]) {
	if l.Synced != nil {
		l.Synced(r.tried, r.failed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range r.tried {
		if r.failed[k] == nil {
			delete(l.failed, k)
		}
	}
	for k, err := range r.failed {
		f := l.failed[k]
		if f == nil {
			f = newFailure(k)
			l.failed[k] = f
		}
		f.err = err
		f.tries++
		f.next = time.Now().Add(f.backoff.NextBackOff())
		l.retries.add(f)
	}
}

// mostRecording is the time to record events after which no further one is begun before keys may go on to Sync.
const mostRecording = 100 * time.Millisecond

// record records queued events for a bounded time, and returns their keys.
func (l *Loop[E, K]) record() (keys []K) {
	for start := time.Now(); time.Since(start) < mostRecording; {
		l.mu.Lock()
		e, ok := l.events.take()
		if ok {
			l.recording++
		}
		l.mu.Unlock()
		if !ok {
			return keys
		}
		keys = append(keys, l.Record(e)...)
	}
	l.wakeUp() // for the others
	return keys
}

// gather adds to waiting: the fresh keys, the keys of queued events, and the keys due for a retry. It returns the
// number of keys added, and their longest MaxWait.
func (l *Loop[E, K]) gather(waiting *batch[K], fresh []K) (keys int, maxWait time.Duration) {
	l.mu.Lock()
	for _, k := range l.retries.takeDue(time.Now()) {
		if !waiting.has(k) {
			fresh = append(fresh, k)
		}
	}
	l.mu.Unlock()
	fresh = append(fresh, l.record()...)
	if l.OnDirty != nil && len(fresh) > 0 {
		fresh = append(fresh, l.OnDirty(fresh)...)
	}
	for _, k := range fresh {
		if !waiting.add(k) {
			continue
		}
		keys++
		if l.MaxWait != nil {
			maxWait = max(maxWait, l.MaxWait(k))
		}
	}
	return keys, maxWait
}

// nextRetry fires at the end of the first backoff.
func (l *Loop[E, K]) nextRetry() <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.retries) == 0 {
		return nil
	}
	return time.After(max(time.Until(l.retries[0].next), retryPause))
}

// retryPause gathers retries that are due one shortly after the other.
const retryPause = 10 * time.Millisecond

// Status is the state of a Loop, for people.
type Status[K cmp.Ordered] struct {
	Events  int // not yet recorded
	Waiting int // dirty keys
	Syncing int // keys in the running call
	Failed  []Failed[K]
}

// Failed is a key with a failed update.
type Failed[K cmp.Ordered] struct {
	Key   K
	Err   error
	Since time.Time // the first failure in a row
	Tries int
	Next  time.Time // the latest time of the next try
}

// Status returns the current state, with failures ordered by key. It may be called by any goroutine.
func (l *Loop[E, K]) Status() Status[K] {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status[K]{Events: l.events.count + l.recording, Waiting: l.waiting, Syncing: l.syncing}
	for _, k := range slices.Sorted(maps.Keys(l.failed)) {
		f := l.failed[k]
		s.Failed = append(s.Failed, Failed[K]{k, f.err, f.since, f.tries, f.next})
	}
	return s
}
