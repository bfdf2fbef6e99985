package reconcile

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// In any order of events, retries and results, those keys are retried that have failed, are due, and are neither in the
// running call nor in the next one.
func TestRetriesInAnyOrder(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { retryInAnyOrder(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func retryInAnyOrder(t *testing.T, r *rand.Rand) {
	l := &Loop[int, int]{
		Record: func(k int) []int { return []int{k} },
		Sync: func([]int) func(context.Context) map[int]error {
			return func(context.Context) map[int]error { return nil }
		},
	}
	l.init()
	const keys = 30
	waiting, running := batch[int]{}, []int(nil)
	for range 3000 {
		switch r.IntN(4) {
		case 0:
			time.Sleep(time.Duration(r.IntN(int(5 * time.Second))))
		case 1: // some of the batch
			if running == nil && waiting.len() > 0 {
				waiting.most = 1 + r.IntN(waiting.len())
				running = waiting.take()
				<-l.begin(t.Context(), running)
			}
		case 2: // a key that was not tried may fail, too
			if running != nil {
				failed := map[int]error{}
				for _, k := range append(slices.Clone(running), r.IntN(keys)) {
					if r.IntN(3) > 0 {
						failed[k] = errors.New("no")
					}
				}
				l.finish(result[int]{running, failed})
				running = nil
			}
		case 3:
			want := map[int]bool{}
			for k := range waiting.dirty {
				want[k] = true
			}
			if r.IntN(3) == 0 {
				k := r.IntN(keys)
				l.Send(k)
				want[k] = true
			}
			for k, f := range l.failed {
				if !slices.Contains(running, k) && !time.Now().Before(f.next) {
					want[k] = true
				}
			}
			l.gather(&waiting, nil)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(waiting.dirty))); diff != "" {
				t.Fatalf("the batch (-want +got):\n%s", diff)
			}
		}
		for i, f := range l.retries {
			if l.failed[f.key] != f || f.at != i || slices.Contains(running, f.key) || f.next.Before(l.retries[0].next) {
				t.Fatalf("retry %d of %d: %+v", i, len(l.retries), f)
			}
		}
	}
}

// BenchmarkManyFailedKeys is one turn of the loop while 100 000 keys wait for their retry.
func BenchmarkManyFailedKeys(b *testing.B) {
	l := &Loop[int, int]{Record: func(k int) []int { return []int{k} }}
	l.init()
	r := result[int]{failed: map[int]error{}}
	for k := range 100_000 {
		r.failed[k] = errors.New("no")
	}
	for range 10 { // so that none is due soon
		l.finish(r)
	}
	for b.Loop() {
		l.gather(&batch[int]{}, nil)
		l.nextRetry()
	}
}
