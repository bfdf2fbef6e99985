package reconcile

import (
	"container/heap"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A failure is the state of a failed key.
type failure[K any] struct {
	key     K
	err     error
	since   time.Time
	tries   int
	next    time.Time
	backoff *backoff.ExponentialBackOff
	at      int // index in retries; -1: the next call of Sync, or the running one, has the key
}

func newFailure[K any](key K) *failure[K] {
	return &failure[K]{key: key, since: time.Now(), at: -1, backoff: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(0), backoff.WithMultiplier(2))}
}

// retries are the failures that wait for their retry, as a heap: the first is due first. While the database is away, there
// may be very many, and each event and each retry asks for the first.
type retries[K any] []*failure[K]

// add adds a failure, or moves it to its new time.
func (r *retries[K]) add(f *failure[K]) {
	if f.at >= 0 {
		heap.Fix(r, f.at)
		return
	}
	heap.Push(r, f)
}

// remove removes a failure if it is there.
func (r *retries[K]) remove(f *failure[K]) {
	if f.at >= 0 {
		heap.Remove(r, f.at)
	}
}

// takeDue removes the due failures, and returns their keys.
func (r *retries[K]) takeDue(now time.Time) (keys []K) {
	for len(*r) > 0 && !now.Before((*r)[0].next) {
		keys = append(keys, heap.Pop(r).(*failure[K]).key)
	}
	return keys
}

// Len implements heap.Interface.
func (r retries[K]) Len() int { return len(r) }

// Less implements heap.Interface.
func (r retries[K]) Less(i, j int) bool { return r[i].next.Before(r[j].next) }

// Swap implements heap.Interface.
func (r retries[K]) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}

// Push implements heap.Interface.
func (r *retries[K]) Push(f any) {
	last := f.(*failure[K])
	last.at = len(*r)
	*r = append(*r, last)
}

// Pop implements heap.Interface.
func (r *retries[K]) Pop() any {
	n := len(*r) - 1
	last := (*r)[n]
	(*r)[n] = nil // or the array would keep it in memory
	*r = (*r)[:n]
	last.at = -1
	return last
}
