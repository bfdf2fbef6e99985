package reconcile

import (
	"context"
	"time"
)

// Paced calls f after each value of changed, but once for all those of a rest, until ctx ends.
func Paced(ctx context.Context, changed <-chan struct{}, rest time.Duration, f func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		f()
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}
