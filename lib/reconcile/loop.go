// Package reconcile turns "something changed" into "the world is right". It
// knows nothing of OVN or Kubernetes.
package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Loop takes in events, which mark keys as dirty, and calls Sync with the
// keys that may be out of date. All its functions are called by Run's goroutine
// only, so what they share needs no lock; but for what Sync returns, which runs
// beside it.
//
// What arrives meanwhile is gathered into the next call. A key that fails
// is tried again after its backoff, or as soon as an event marks it.
type Loop[E any, K cmp.Ordered] struct {
	// Take records one event and returns the keys that it makes dirty. Events
	// come in the order in which they were sent.
	Take func(E) []K
	// Sync finds out what to do about dirty keys, and returns what does it: work
	// that may take long, of which one runs at a time. That returns the keys that
	// could not be brought up to date, each with the reason.
	Sync func(dirty []K) (work func(context.Context) (failed map[K]error))
	// Most is how many keys Sync gets at once, the first of them in the order of Compare;
	// 0 means all. It bounds the memory that their comparison takes.
	Most int
	// Compare orders keys; nil is their natural order.
	Compare func(a, b K) int
	// Synced is told what came of it. nil means that nobody wants to know.
	Synced func(tried []K, failed map[K]error)
	// Prompt is called with keys as soon as they are dirty, even while work is
	// under way or within a gap, and before Sync gets them. It does what need not be gathered, and returns more
	// keys that it found dirty. nil means that there is nothing to do.
	Prompt func(dirty []K) (more []K)
	// Gap is asked after each work how long to gather events before the
	// next one, and told how many keys came while that work was under way. nil
	// means not at all.
	Gap func(waiting int) time.Duration
	// Hold says how long a key that has become dirty may wait for others that
	// mostly come with it. It makes no gap longer that is under way. nil means not at all.
	Hold func(K) time.Duration
	// Lull ends a gap early: when no key became dirty for so long, for a fifth
	// of what Gap says, and for several times as long as they came one after
	// the other. 0 means never.
	Lull time.Duration
	// Resync is how often All keys are made dirty; 0 means never.
	Resync time.Duration
	// All lists all keys, for Resync.
	All func() []K

	mu     sync.Mutex // guards what follows
	events []E
	failed map[K]*failure
	// How many events are being taken in, and how many keys wait or are in the
	// call that runs.
	taking, waiting, syncing int

	wake chan struct{}
	once sync.Once
}

// A failure is a key that waits for its next try.
type failure struct {
	err     error
	since   time.Time
	tries   int
	next    time.Time
	backoff *backoff.ExponentialBackOff
}

func (l *Loop[E, K]) init() {
	l.once.Do(func() { l.failed, l.wake = map[K]*failure{}, make(chan struct{}, 1) })
}

// Send hands in events. It never blocks, and may be called by any goroutine.
func (l *Loop[E, K]) Send(events ...E) {
	l.init()
	l.mu.Lock()
	l.events = append(l.events, events...)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// Run works until ctx is done, waits for the end of what Sync has begun, and
// returns ctx's error.
func (l *Loop[E, K]) Run(ctx context.Context) error {
	l.init()
	var resync <-chan time.Time
	if l.Resync > 0 {
		t := time.NewTicker(l.Resync)
		defer t.Stop()
		resync = t.C
	}
	batch := map[K]bool{}
	var current, next gap   // next is that after the work under way
	var done chan result[K] // nil: no work is under way
	defer func() {
		if done != nil {
			<-done
		}
	}()
	for {
		var fresh []K
		over := false // the gap is
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		case <-resync:
			fresh = l.All()
		case <-l.nextRetry():
		case <-current.end:
			over = true
		case <-current.over:
			over = true
		case r := <-done:
			done = nil
			l.finish(r)
			if current = l.gapAfter(len(batch)); next.length > current.length {
				current = next
			}
			next = gap{}
		}
		keys, hold := l.gather(batch, fresh)
		switch {
		case over:
			current = gap{}
		case done != nil && hold > next.length:
			next = newGap(hold, l.Lull)
		case done == nil && current.end == nil:
			current = newGap(hold, l.Lull)
		}
		current.came(keys)
		next.came(keys)
		if current.end == nil && done == nil && len(batch) > 0 {
			var keys []K
			keys, batch = l.first(batch)
			done = l.begin(ctx, keys)
		}
		l.count(len(batch), done != nil)
	}
}

// A gap is the time in which keys are gathered. The zero gap is none: what is
// dirty need not wait.
type gap struct {
	end, over <-chan time.Time // end is nil if there is no gap; over ends it early
	began     time.Time
	length    time.Duration
	lull      time.Duration // how long nothing must come for that, at the least; 0: never
	keys      int           // that came
}

func newGap(length, lull time.Duration) gap {
	if length <= 0 {
		return gap{}
	}
	return gap{end: time.After(length), began: time.Now(), length: length, lull: lull}
}

// gapAfter is the gap after work during which so many keys came.
func (l *Loop[E, K]) gapAfter(waiting int) gap {
	if l.Gap == nil {
		return gap{}
	}
	length, lull := l.Gap(waiting), l.Lull
	if lull > 0 {
		lull = max(lull, length/lullPart)
	}
	g := newGap(length, lull)
	if waiting == 1 { // of several, more are on their way
		g.came(waiting)
	}
	return g
}

// Nothing must come for a lull during 1/lullPart of what Gap says, and lullFactor
// times as long as usual.
const (
	lullPart   = 5
	lullFactor = 8
)

// came notes that keys came, and begins to wait for the next.
func (g *gap) came(keys int) {
	if g.end == nil || g.lull == 0 || keys == 0 {
		return
	}
	g.keys += keys
	g.over = time.After(max(g.lull, lullFactor*time.Since(g.began)/time.Duration(g.keys)))
}

// count notes how many keys wait, and whether others are being brought up to date.
func (l *Loop[E, K]) count(waiting int, syncing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taking, l.waiting = 0, waiting
	if !syncing {
		l.syncing = 0
	}
}

// first returns the keys that Sync gets next, and the others: in a new map, for one
// that is emptied keeps its room.
func (l *Loop[E, K]) first(batch map[K]bool) (keys []K, rest map[K]bool) {
	compare := l.Compare
	if compare == nil {
		compare = cmp.Compare[K]
	}
	keys, rest = slices.SortedFunc(maps.Keys(batch), compare), map[K]bool{}
	if l.Most == 0 || len(keys) <= l.Most {
		return keys, rest
	}
	for _, k := range keys[l.Most:] {
		rest[k] = true
	}
	return slices.Clone(keys[:l.Most]), rest
}

// A result is what came of one call of Sync.
type result[K cmp.Ordered] struct {
	tried  []K
	failed map[K]error
}

// begin starts to bring keys up to date.
func (l *Loop[E, K]) begin(ctx context.Context, keys []K) chan result[K] {
	l.mu.Lock()
	l.syncing = len(keys)
	l.mu.Unlock()
	work := l.Sync(keys)
	done := make(chan result[K], 1)
	go func() { done <- result[K]{keys, work(ctx)} }()
	return done
}

// finish notes which keys failed.
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
			f = &failure{since: time.Now(), backoff: backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(0), backoff.WithMultiplier(2))}
			l.failed[k] = f
		}
		f.err = err
		f.tries++
		f.next = time.Now().Add(f.backoff.NextBackOff())
	}
}

// gather adds fresh keys to batch, those that waiting events make dirty, and
// those whose backoff is over. It returns how many are new in it, and how long
// they may wait.
func (l *Loop[E, K]) gather(batch map[K]bool, fresh []K) (keys int, hold time.Duration) {
	l.mu.Lock()
	events := l.events
	l.events, l.taking = nil, len(l.events)
	for k, f := range l.failed {
		if !batch[k] && !time.Now().Before(f.next) {
			fresh = append(fresh, k)
		}
	}
	l.mu.Unlock()
	for _, e := range events {
		fresh = append(fresh, l.Take(e)...)
	}
	if l.Prompt != nil && len(fresh) > 0 {
		fresh = append(fresh, l.Prompt(fresh)...)
	}
	for _, k := range fresh {
		if batch[k] {
			continue
		}
		batch[k] = true
		keys++
		if l.Hold != nil {
			hold = max(hold, l.Hold(k))
		}
	}
	return keys, hold
}

// nextRetry fires when the first backoff is over.
func (l *Loop[E, K]) nextRetry() <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next time.Time
	for _, f := range l.failed {
		if next.IsZero() || f.next.Before(next) {
			next = f.next
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(max(time.Until(next), retryPause))
}

// retryPause keeps a key whose backoff ends within a gap from being looked at
// again and again until the gap is over.
const retryPause = 10 * time.Millisecond

// Status is the state of a Loop, for people.
type Status[K cmp.Ordered] struct {
	Events  int // that wait to be taken in
	Waiting int // keys that are to be brought up to date
	Syncing int // keys that are being brought up to date now
	Failed  []Failed[K]
}

// Failed is a key that could not be brought up to date.
type Failed[K cmp.Ordered] struct {
	Key   K
	Err   error
	Since time.Time // of the first failure in a row
	Tries int
	Next  time.Time // when it is tried again at the latest
}

// Status returns the current state, failures in the order of their keys. It may
// be called by any goroutine.
func (l *Loop[E, K]) Status() Status[K] {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status[K]{Events: len(l.events) + l.taking, Waiting: l.waiting, Syncing: l.syncing}
	for _, k := range slices.Sorted(maps.Keys(l.failed)) {
		f := l.failed[k]
		s.Failed = append(s.Failed, Failed[K]{k, f.err, f.since, f.tries, f.next})
	}
	return s
}
