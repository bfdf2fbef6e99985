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
// keys that may be out of date. Take and Sync are called by Run's goroutine
// only, so what they share needs no lock.
//
// What arrives while Sync runs is gathered into the next call. A key that fails
// is tried again after its backoff, or as soon as an event marks it.
type Loop[E any, K cmp.Ordered] struct {
	// Take records one event and returns the keys that it makes dirty. Events
	// come in the order in which they were sent.
	Take func(E) []K
	// Sync brings dirty keys up to date. It returns those that it could not,
	// each with the reason. It may find more keys to do: those count as dirty.
	Sync func(ctx context.Context, dirty []K) (failed map[K]error)
	// Gap is asked after each call of Sync how long to gather events before the
	// next one. nil means not at all.
	Gap func() time.Duration
	// Resync is how often All keys are made dirty; 0 means never.
	Resync time.Duration
	// All lists all keys, for Resync.
	All func() []K

	mu     sync.Mutex // guards what follows
	events []E
	failed map[K]*failure
	dirty  int // keys in the call that runs
	wake   chan struct{}
	once   sync.Once
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

// Run calls Take and Sync until ctx is done, and returns ctx's error.
func (l *Loop[E, K]) Run(ctx context.Context) error {
	l.init()
	var resync <-chan time.Time
	if l.Resync > 0 {
		t := time.NewTicker(l.Resync)
		defer t.Stop()
		resync = t.C
	}
	for {
		retry := l.nextRetry()
		var batch map[K]bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		case <-resync:
			batch = setOf(l.All())
		case <-retry:
		}
		batch = l.gather(batch)
		if len(batch) == 0 {
			continue
		}
		l.sync(ctx, batch)
		if l.Gap != nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(l.Gap()):
			}
		}
	}
}

func setOf[K cmp.Ordered](keys []K) map[K]bool {
	set := make(map[K]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// gather takes in all events that wait and adds the keys that they make dirty,
// and those whose backoff is over, to batch.
func (l *Loop[E, K]) gather(batch map[K]bool) map[K]bool {
	l.mu.Lock()
	events := l.events
	l.events = nil
	l.mu.Unlock()
	if batch == nil {
		batch = map[K]bool{}
	}
	for _, e := range events {
		for _, k := range l.Take(e) {
			batch[k] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, f := range l.failed {
		if !time.Now().Before(f.next) {
			batch[k] = true
		}
	}
	return batch
}

func (l *Loop[E, K]) sync(ctx context.Context, batch map[K]bool) {
	l.mu.Lock()
	l.dirty = len(batch)
	l.mu.Unlock()
	failed := l.Sync(ctx, slices.Sorted(maps.Keys(batch)))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty = 0
	for k := range batch {
		if failed[k] == nil {
			delete(l.failed, k)
		}
	}
	for k, err := range failed {
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
	return time.After(time.Until(next))
}

// Status is the state of a Loop, for people.
type Status[K cmp.Ordered] struct {
	Events  int // that wait to be taken in
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
	s := Status[K]{Events: len(l.events), Syncing: l.dirty}
	for _, k := range slices.Sorted(maps.Keys(l.failed)) {
		f := l.failed[k]
		s.Failed = append(s.Failed, Failed[K]{k, f.err, f.since, f.tries, f.next})
	}
	return s
}
