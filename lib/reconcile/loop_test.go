package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a loop whose events are the keys that they mark.
func recorder(broken map[string]error) (*Loop[string, string], *[][]string) {
	calls := &[][]string{}
	l := &Loop[string, string]{
		Take: func(e string) []string { return []string{e} },
		Sync: func(_ context.Context, dirty []string) map[string]error {
			*calls = append(*calls, dirty)
			failed := map[string]error{}
			for _, k := range dirty {
				if broken[k] != nil {
					failed[k] = broken[k]
				}
			}
			return failed
		},
		Gap: func() time.Duration { return 100 * time.Millisecond },
	}
	return l, calls
}

func TestGathersWhatArrivesInTheGap(t *testing.T) {
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
		if want := [][]string{{"a"}, {"b", "c"}}; !slices.EqualFunc(*calls, want, slices.Equal) {
			t.Errorf("calls %q, want %q", *calls, want)
		}
	})
}

func TestPromptDoesNotWaitForTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		var prompt []string
		l.Prompt = func(dirty []string) []string {
			prompt = append(prompt, dirty...)
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
		if want := []string{"a", "b"}; !slices.Equal(prompt, want) || len(*calls) != 1 {
			t.Errorf("prompt %q, want %q; %d calls", prompt, want, len(*calls))
		}
		time.Sleep(150 * time.Millisecond)
		cancel()
		synctest.Wait()
		if want := [][]string{{"a"}, {"b", "found"}}; !slices.EqualFunc(*calls, want, slices.Equal) {
			t.Errorf("calls %q, want %q", *calls, want)
		}
	})
}

func TestFailedKeysAreTriedAgainLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := map[string]error{"bad": errors.New("no")}
		l, calls := recorder(broken)
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.Send("good", "bad")
		time.Sleep(time.Hour)
		n := len(*calls)
		if n < 50 || n > 150 {
			t.Errorf("%d calls in an hour: want about one a minute", n)
		}
		if got := l.Status().Failed; len(got) != 1 || got[0].Key != "bad" || got[0].Err.Error() != "no" || got[0].Tries != n {
			t.Errorf("failed: %+v, want bad with %d tries", got, n)
		}
		delete(broken, "bad")
		l.Send("bad") // an event does not wait for the backoff
		time.Sleep(time.Millisecond)
		if got := l.Status(); len(*calls) != n+1 || len(got.Failed) != 0 {
			t.Errorf("after the repair: %d calls more, %+v", len(*calls)-n, got)
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
		if want := [][]string{{"x", "y"}, {"x", "y"}}; !slices.EqualFunc(*calls, want, slices.Equal) {
			t.Errorf("calls %q, want %q", *calls, want)
		}
	})
}
