package reconcile

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// computer returns a recorder whose keys take a time to compute. Sync must get the keys computed.
func computer(t *testing.T, cost func(key string) time.Duration) (*Loop[string, string], *record[[]string]) {
	l, calls := recorder(nil)
	l.MinInterval = nil
	var computed []string
	l.Compute = func(k string) {
		time.Sleep(cost(k))
		computed = append(computed, k)
	}
	sync := l.Sync
	l.Sync = func(dirty []string) func(context.Context) map[string]error {
		if !slices.Equal(dirty, computed) {
			t.Errorf("Sync of %q, computed are %q", dirty, computed)
		}
		computed = nil
		return sync(dirty)
	}
	return l, calls
}

// L1: a key goes on before all expensive ones behind it are computed, and these follow, without an interval.
func TestComputingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := computer(t, func(k string) time.Duration {
			if strings.HasPrefix(k, "service") {
				return mostComputing / 2
			}
			return 0
		})
		l.MinInterval = func(int) time.Duration { return time.Hour }
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 6 {
			l.Send(fmt.Sprint("service-", i))
		}
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(mostComputing / 4)
		l.Send("pod")
		time.Sleep(10 * mostComputing)
		synctest.Wait()
		want := [][]string{{"service-0", "service-1"}, {"pod", "service-2", "service-3"}, {"service-4", "service-5"}}
		if !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
		cancel()
		<-ended
	})
}

// Related keys go on together, though they take longer, but not for ever; then others are late.
func TestRelatedKeysGoOnTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := computer(t, func(k string) time.Duration {
			if strings.HasPrefix(k, "b") {
				return mostRelated
			}
			return mostComputing
		})
		l.Related = func(k string) bool { return k < "c" }
		ctx, cancel := context.WithCancel(t.Context())
		l.Send("a1", "a2", "b1", "b2", "c1", "c2")
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(3 * mostRelated)
		synctest.Wait()
		want := [][]string{{"a1", "a2", "b1"}, {"b2"}, {"c1"}, {"c2"}}
		if !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
		cancel()
		<-ended
	})
}

// A key left by a call of Sync is in the next one, though others are dirty all the time.
func TestKeysThatAreLeftGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := computer(t, func(string) time.Duration { return mostComputing })
		sync := l.Sync
		l.Sync = func(dirty []string) func(context.Context) map[string]error {
			l.Send("a", "b") // again
			return sync(dirty)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l.Send("a", "b", "y", "z")
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(15 * mostComputing)
		cancel()
		<-ended
		got := calls.get()
		if len(got) < 4 {
			t.Fatalf("calls %q", got)
		}
		for _, key := range []string{"y", "z"} {
			if !slices.ContainsFunc(got, func(call []string) bool { return slices.Contains(call, key) }) {
				t.Errorf("%s never went on: %q", key, got)
			}
		}
	})
}

// Keys are taken in their order, each once until it is dirty again, whatever is left and comes meanwhile.
func TestLeftKeysKeepTheirOrder(t *testing.T) {
	for _, most := range []int{0, 7} {
		r := rand.New(rand.NewPCG(uint64(most), 1))
		synctest.Test(t, func(t *testing.T) {
			spent, dirty := 0, map[string]bool{}
			b := batch[string]{most: most, compute: func(string) {
				spent++
				time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
			}}
			for range 200 {
				for range r.IntN(9) {
					k := fmt.Sprint("key-", r.IntN(30))
					if b.add(k) == dirty[k] {
						t.Fatalf("adding %s reports %v", k, dirty[k])
					}
					dirty[k] = true
				}
				before := spent
				keys := b.take()
				if !slices.IsSorted(keys) || spent-before != len(keys) || most > 0 && len(keys) > most {
					t.Fatalf("took %q, computed %d", keys, spent-before)
				}
				for _, k := range keys {
					if !dirty[k] || b.has(k) {
						t.Fatalf("took %s, that is not dirty or stays so", k)
					}
					delete(dirty, k)
				}
				if left := slices.Sorted(maps.Keys(dirty)); b.len() != len(dirty) || !slices.Equal(b.left, left) {
					t.Fatalf("left %q of %d; dirty are %q", b.left, b.len(), left)
				}
			}
		})
	}
}
