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

	left left[K] // belongs to Run

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
	batch := map[K]bool{}
	var current, next interval // next follows the work under way
	var done chan result[K]    // nil: no work is under way
	defer func() {
		if done != nil {
			<-done
		}
	}()
	for {
		var fresh []K
		var finished *result[K]
		intervalEnded := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		case <-resync:
			fresh = l.All()
		case <-l.nextRetry():
		case <-current.end:
			intervalEnded = true
		case <-current.quiet:
			intervalEnded = true
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
			if current = l.intervalAfter(len(batch)); next.length > current.length {
				current = next
			}
			next = interval{}
		}
		keys, maxWait := l.gather(batch, fresh)
		switch {
		case intervalEnded:
			current = interval{}
		case done != nil && maxWait > next.length:
			next = newInterval(maxWait, l.Quiet)
		case done == nil && current.end == nil:
			current = newInterval(maxWait, l.Quiet)
		}
		current.arrived(keys)
		next.arrived(keys)
		if current.end == nil && done == nil && len(batch) > 0 {
			var keys []K
			keys, batch = l.first(batch)
			done = l.begin(ctx, keys)
		}
		l.count(len(batch), done != nil)
	}
}

// An interval is a time of gathering keys. The zero interval means that dirty keys need not wait.
type interval struct {
	end, quiet <-chan time.Time // end is nil for the zero interval; quiet ends it early
	began      time.Time
	length     time.Duration
	quietFor   time.Duration // the shortest quiet time; 0: never
	keys       int           // arrived so far
}

func newInterval(length, quiet time.Duration) interval {
	if length <= 0 {
		return interval{}
	}
	return interval{end: time.After(length), began: time.Now(), length: length, quietFor: quiet}
}

// intervalAfter is the interval after work during which waiting keys were marked. Keys left by Compute need none.
func (l *Loop[E, K]) intervalAfter(waiting int) interval {
	if l.MinInterval == nil || l.left.late {
		return interval{}
	}
	length, quiet := l.MinInterval(waiting), l.Quiet
	if quiet > 0 {
		quiet = max(quiet, length/quietPart)
	}
	i := newInterval(length, quiet)
	if waiting == 1 { // if there are several, more are on their way
		i.arrived(waiting)
	}
	return i
}

// The quiet time is at least MinInterval/quietPart, and quietFactor times the mean inter-arrival time.
const (
	quietPart   = 5
	quietFactor = 8
)

// arrived counts keys and restarts the quiet time.
func (i *interval) arrived(keys int) {
	if i.end == nil || i.quietFor == 0 || keys == 0 {
		return
	}
	i.keys += keys
	i.quiet = time.After(max(i.quietFor, quietFactor*time.Since(i.began)/time.Duration(i.keys)))
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

// left are the waiting keys that the former call of Sync left, in their order.
type left[K cmp.Ordered] struct {
	keys []K
	is   map[K]bool
	late bool // Compute did not reach them in time
}

// first splits batch into the keys for the next Sync and the rest.
func (l *Loop[E, K]) first(batch map[K]bool) (keys []K, rest map[K]bool) {
	all := l.ordered(batch)
	most := len(all)
	if l.MaxBatch > 0 {
		most = min(most, l.MaxBatch)
	}
	n := l.compute(all[:most])
	l.left.late = n < most
	if n == len(all) {
		l.left = left[K]{}
		return all, map[K]bool{} // a new one, since deleting keys does not shrink a map
	}
	for _, k := range all[:n] {
		delete(batch, k)
		delete(l.left.is, k)
	}
	l.left.keys = all[n:]
	return slices.Clone(all[:n]), batch
}

// ordered lists the keys of batch. Only those that were not left are sorted: there may be very many.
func (l *Loop[E, K]) ordered(batch map[K]bool) []K {
	compare := l.Compare
	if compare == nil {
		compare = cmp.Compare[K]
	}
	if l.left.is == nil {
		l.left.is = map[K]bool{}
	}
	var fresh []K
	if len(batch) > len(l.left.keys) {
		for k := range batch {
			if !l.left.is[k] {
				fresh = append(fresh, k)
				l.left.is[k] = true
			}
		}
		slices.SortFunc(fresh, compare)
	}
	return merged(l.left.keys, fresh, compare)
}

// merged merges two ordered lists.
func merged[K any](a, b []K, compare func(K, K) int) []K {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	all := make([]K, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compare(a[0], b[0]) <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// mostComputing is the time after which Compute is called for no further key.
const mostComputing = 100 * time.Millisecond

// compute calls Compute for keys, for a bounded time, and returns the number of keys computed. The first of the keys
// left by the former call is among them: otherwise keys before it could keep it waiting for ever.
func (l *Loop[E, K]) compute(keys []K) (computed int) {
	if l.Compute == nil {
		return len(keys)
	}
	reached := len(l.left.keys) == 0
	for start := time.Now(); computed < len(keys); computed++ {
		if computed > 0 && reached && time.Since(start) >= mostComputing {
			break
		}
		l.Compute(keys[computed])
		reached = reached || keys[computed] == l.left.keys[0]
	}
	return computed
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

// gather adds to batch: the fresh keys, the keys of queued events, and the keys due for a retry. It returns the
// number of keys added, and their longest MaxWait.
func (l *Loop[E, K]) gather(batch map[K]bool, fresh []K) (keys int, maxWait time.Duration) {
	l.mu.Lock()
	for _, k := range l.retries.takeDue(time.Now()) {
		if !batch[k] {
			fresh = append(fresh, k)
		}
	}
	l.mu.Unlock()
	fresh = append(fresh, l.record()...)
	if l.OnDirty != nil && len(fresh) > 0 {
		fresh = append(fresh, l.OnDirty(fresh)...)
	}
	for _, k := range fresh {
		if batch[k] {
			continue
		}
		batch[k] = true
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
