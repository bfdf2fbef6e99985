package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A change is looked at without a delay, and the many of a burst of pods a few times a second, the last one included.
func TestChangesOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		const rest = 200 * time.Millisecond
		changed, done, looks, changes, seen := make(chan struct{}, 1), make(chan struct{}), 0, 0, 0
		poke := func(c chan<- struct{}) {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		go func() {
			Paced(ctx, changed, rest, func() { looks, seen = looks+1, changes })
			close(done)
		}()
		for changes < 600 {
			changes++
			poke(changed)
			synctest.Wait()
			if looks == 0 {
				t.Fatal("the first change is not looked at")
			}
			<-time.After(time.Millisecond) // of the bubble's clock
		}
		<-time.After(rest)
		synctest.Wait()
		if looks > 4 || seen != changes {
			t.Errorf("looked %d times at %d changes, want 4; the last one saw %d", looks, changes, seen)
		}
		poke(changed) // the end does not wait for the rest
		synctest.Wait()
		before := time.Now()
		cancel()
		<-done
		if time.Since(before) > 0 {
			t.Error("the end waits")
		}
	})
}
