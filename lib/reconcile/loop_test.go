package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A record is a list shared by a loop and its test.
type record[T any] struct {
	mu   sync.Mutex
	list []T
}

func (r *record[T]) add(v ...T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v...)
}

func (r *record[T]) get() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// recorder returns a loop in which each event is the key it marks, and the calls of Sync.
func recorder(broken map[string]error) (*Loop[string, string], *record[[]string]) {
	calls := &record[[]string]{}
	l := &Loop[string, string]{
		Record: func(e string) []string { return []string{e} },
		Sync: func(dirty []string) func(context.Context) map[string]error {
			calls.add(dirty)
			failed := map[string]error{}
			for _, k := range dirty {
				if broken[k] != nil {
					failed[k] = broken[k]
				}
			}
			return func(context.Context) map[string]error { return failed }
		},
		MinInterval: func(int) time.Duration { return 100 * time.Millisecond },
	}
	return l, calls
}

func TestKeysAreGatheredDuringTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("a")
		synctest.Wait() // the first call is immediate
		l.Send("b")
		l.Send("b", "c")
		time.Sleep(150 * time.Millisecond)
		cancel()
		synctest.Wait()
		if want := [][]string{{"a"}, {"b", "c"}}; !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
	})
}

func TestQuietEndsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.MinInterval = func(int) time.Duration { return time.Second }
		l.Quiet = 20 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("first")
		synctest.Wait()
		for i := range 10 { // one each 10 ms: quiet means 80 ms
			time.Sleep(10 * time.Millisecond)
			l.Send(string(rune('a' + i)))
		}
		time.Sleep(180 * time.Millisecond)
		synctest.Wait()
		if n := len(calls.get()); n != 1 {
			t.Errorf("%d calls within the interval", n)
		}
		time.Sleep(30 * time.Millisecond) // a fifth of the interval is 200 ms
		synctest.Wait()
		cancel()
		if got := calls.get(); len(got) != 2 || len(got[1]) != 10 {
			t.Errorf("calls %q, want the ten at once after a quiet time", got)
		}
		synctest.Wait()
	})
}

// runSlowly runs a loop until stop is called. Each work takes 10 ms.
func runSlowly(t *testing.T, l *Loop[string, string]) (stop func()) {
	inner := l.Sync
	l.Sync = func(dirty []string) func(context.Context) map[string]error {
		work := inner(dirty)
		return func(ctx context.Context) map[string]error {
			time.Sleep(10 * time.Millisecond)
			return work(ctx)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	return func() {
		cancel()
		<-ended
	}
}

func TestQuietEndsTheIntervalOfOneKeyMarkedDuringWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.MinInterval = func(int) time.Duration { return 300 * time.Millisecond }
		l.Quiet = 12 * time.Millisecond // less than a fifth of the interval, 60 ms
		defer runSlowly(t, l)()
		l.Send("a")
		time.Sleep(5 * time.Millisecond)
		l.Send("b") // work ends at 10 ms, the quiet time at 70, and the work for b at 80
		time.Sleep(80 * time.Millisecond)
		synctest.Wait()
		if n := len(calls.get()); n != 2 {
			t.Errorf("%d calls after 85 ms, want 2", n)
		}
	})
}

func TestQuietEndsMaxWaitOfKeysMarkedDuringWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.MinInterval, l.Quiet = nil, 5*time.Millisecond
		l.MaxWait = func(string) time.Duration { return 100 * time.Millisecond }
		defer runSlowly(t, l)()
		l.Send("a")
		time.Sleep(7 * time.Millisecond) // the quiet time is over, and work has begun
		l.Send("b")
		time.Sleep(19 * time.Millisecond) // the quiet time was over before the work, and the work for b takes 10 ms
		synctest.Wait()
		if n := len(calls.get()); n != 2 {
			t.Errorf("%d calls 19 ms later, want 2", n)
		}
	})
}

func TestMaxWaitGathersKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.MinInterval, l.Quiet = nil, 10*time.Millisecond
		l.MaxWait = func(k string) time.Duration {
			if k[0] == 'p' {
				return 100 * time.Millisecond
			}
			return 0
		}
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("a")
		synctest.Wait() // does not wait
		for i := range 10 {
			l.Send("p" + string(rune('0'+i)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(15 * time.Millisecond) // quiet
		synctest.Wait()
		for i := range 69 { // not quiet
			l.Send("q", "p"+string(rune('a'+i)))
			time.Sleep(3 * time.Millisecond)
		}
		cancel()
		synctest.Wait()
		var sizes []int
		for _, c := range calls.get() {
			sizes = append(sizes, len(c))
		}
		if want := []int{1, 10, 35, 35}; !slices.Equal(sizes, want) {
			t.Errorf("calls of %d keys, want %d", sizes, want)
		}
	})
}

func TestMaxBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.MaxBatch = 2
		ctx, cancel := context.WithCancel(t.Context())
		l.Send("e", "d", "c", "b", "a")
		go l.Run(ctx)
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		if want := [][]string{{"a", "b"}, {"c", "d"}, {"e"}}; !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
	})
}

func TestOnDirtyDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		var onDirty record[string]
		l.OnDirty = func(dirty []string) []string {
			onDirty.add(dirty...)
			if slices.Contains(dirty, "b") {
				return []string{"found"}
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("a")
		synctest.Wait()
		l.Send("b")
		synctest.Wait()
		if want := []string{"a", "b"}; !slices.Equal(onDirty.get(), want) || len(calls.get()) != 1 {
			t.Errorf("onDirty %q, want %q; %d calls", onDirty.get(), want, len(calls.get()))
		}
		time.Sleep(150 * time.Millisecond)
		cancel()
		synctest.Wait()
		if want := [][]string{{"a"}, {"b", "found"}}; !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
	})
}

func TestEventsAreRecordedDuringWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		inner := l.Sync
		l.Sync = func(dirty []string) func(context.Context) map[string]error {
			work := inner(dirty)
			return func(ctx context.Context) map[string]error {
				time.Sleep(time.Minute)
				return work(ctx)
			}
		}
		var onDirty record[string]
		l.OnDirty = func(dirty []string) []string {
			onDirty.add(dirty...)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		l.Send("a")
		synctest.Wait()
		l.Send("b")
		synctest.Wait()
		if want := []string{"a", "b"}; !slices.Equal(onDirty.get(), want) || len(calls.get()) != 1 || l.Status().Syncing != 1 {
			t.Errorf("onDirty %q, want %q; %d calls, %+v", onDirty.get(), want, len(calls.get()), l.Status())
		}
		time.Sleep(90 * time.Second)
		cancel()
		<-ended // after the second work
		if want := [][]string{{"a"}, {"b"}}; !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
	})
}

func TestFailedKeysAreRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := map[string]error{"bad": errors.New("no")}
		l, calls := recorder(broken)
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("good", "bad")
		time.Sleep(time.Hour)
		synctest.Wait()
		n := len(calls.get())
		if n < 50 || n > 150 {
			t.Errorf("%d calls in an hour: want about one a minute", n)
		}
		if got := l.Status().Failed; len(got) != 1 || got[0].Key != "bad" || got[0].Err.Error() != "no" || got[0].Tries != n {
			t.Errorf("failed: %+v, want bad with %d tries", got, n)
		}
		delete(broken, "bad")
		l.Send("bad") // an event does not wait for the backoff
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := l.Status(); len(calls.get()) != n+1 || len(got.Failed) != 0 {
			t.Errorf("after the repair: %d calls more, %+v", len(calls.get())-n, got)
		}
		cancel()
		synctest.Wait()
	})
}

// A retry that takes long is one retry.
func TestAKeyIsNotRetriedDuringItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.Sync = func(dirty []string) func(context.Context) map[string]error {
			calls.add(dirty)
			n := len(calls.get())
			return func(context.Context) map[string]error {
				if n == 1 {
					return map[string]error{"slow": errors.New("no")}
				}
				time.Sleep(time.Minute)
				return nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("slow")
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := calls.get(); len(got) != 2 || len(l.Status().Failed) != 0 {
			t.Errorf("calls %q, %+v", got, l.Status())
		}
		cancel()
		synctest.Wait()
	})
}

func TestResyncMarksAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.Resync, l.All = 10*time.Minute, func() []string { return []string{"x", "y"} }
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		time.Sleep(25 * time.Minute)
		cancel()
		synctest.Wait()
		if want := [][]string{{"x", "y"}, {"x", "y"}}; !slices.EqualFunc(calls.get(), want, slices.Equal) {
			t.Errorf("calls %q, want %q", calls.get(), want)
		}
	})
}
