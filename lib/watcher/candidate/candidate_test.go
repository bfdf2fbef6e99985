package candidate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("closed by the server")

// A database started again costs no Lease. One that is away for longer does, once, and with the reason.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Connection
		held, stop := c.Within(t.Context())
		defer stop()
		for range 3 {
			time.Sleep(time.Minute)
			c.Down(errDown)
			time.Sleep(Patience - time.Second)
			c.Up()
		}
		synctest.Wait()
		if held.Err() != nil || c.Unable() != nil {
			t.Fatalf("it ends for short losses: %v, %v", context.Cause(held), c.Unable())
		}
		c.Down(errDown)
		lost := time.Now()
		if err := c.Unable(); !errors.Is(err, errDown) {
			t.Errorf("without a connection it may take the Lease: %v", err)
		}
		<-held.Done()
		if took := time.Since(lost); took != Patience {
			t.Errorf("it ends after %s", took)
		}
		if cause := context.Cause(held); !errors.As(cause, new(Lost)) || !errors.Is(cause, errDown) {
			t.Errorf("it ends with %v", cause)
		}
	})
}

// A leader beginning without a connection has the rest of the time.
func TestPatienceBeginsWithTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Connection
		c.Down(errDown)
		time.Sleep(Patience - time.Second)
		began := time.Now()
		held, stop := c.Within(t.Context())
		defer stop()
		<-held.Done()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it ends after %s", took)
		}
	})
}

// A leader whose new connection reads the database goes on: with a slow server, the others read as long. Silence ends it.
func TestPatienceWhileTheDatabaseIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Connection
		held, stop := c.Within(t.Context())
		defer stop()
		c.Progress() // of a new connection
		lost := time.Now()
		c.Down(errDown)
		for range 10 {
			time.Sleep(Patience - time.Second)
			c.Progress()
		}
		synctest.Wait()
		if held.Err() != nil {
			t.Fatalf("it ends in spite of progress: %v", context.Cause(held))
		}
		if err := c.Unable(); err == nil || !strings.Contains(err.Error(), lost.UTC().Format(time.RFC3339)) {
			t.Errorf("lost at %s: %v", lost.UTC(), err)
		}
		silent := time.Now()
		<-held.Done()
		if took := time.Since(silent); took != Patience {
			t.Errorf("it ends after %s of silence", took)
		}
	})
}

// Reading alone does not keep the Lease: if only the leader's way to the database is slow, another watcher has a connection.
// A large database has more time. Attempts that break and begin anew share it.
func TestReadingHasALimit(t *testing.T) {
	for _, tt := range []struct{ first, limit time.Duration }{
		{0, leastLimit}, {30 * time.Second, leastLimit}, {2 * time.Minute, 8 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var c Connection
			c.Read(tt.first)
			for range 2 { // each loss has the time
				held, stop := c.Within(t.Context())
				lost := time.Now()
				c.Down(errDown)
				for time.Since(lost) < 2*tt.limit && held.Err() == nil {
					select {
					case <-held.Done():
					case <-time.After(5 * time.Second):
						c.Progress()
					}
				}
				took, cause := time.Since(lost), context.Cause(held)
				if want := "not connected for " + tt.limit.String() + ", though"; took != tt.limit || cause == nil || !strings.Contains(cause.Error(), want) {
					t.Errorf("first %s: it ends after %s, want %s: %v", tt.first, took, tt.limit, cause)
				}
				if !errors.As(cause, new(Lost)) || !errors.Is(cause, errDown) || c.Unable() == nil {
					t.Errorf("it ends with %v; then: %v", cause, c.Unable())
				}
				stop()
				c.Up()
			}
		})
	}
}
