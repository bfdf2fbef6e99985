// Package poll waits for conditions without an event.
package poll

import (
	"context"
	"errors"
	"time"

	"ovn-k8s/test/limit"
)

// interval is the time between two checks of a condition, on a fast machine. Checks may
// start programs; a slow machine has other work as well.
const interval = 20 * time.Millisecond

// Until checks a condition again and again, until done returns no error or ctx ends.
func Until(ctx context.Context, done func() error) error {
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(limit.Of(interval)):
		}
	}
}
