// Package candidate says whether a watcher may have the Lease: without the Northbound database it writes nothing, and
// another watcher may have a connection.
package candidate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"ovn-k8s/lib/ovsdb"
)

const (
	// Patience is the time without a connection after which the leader releases the Lease. A database that is started again,
	// or an election in its cluster, takes less. While a new connection reads the database, the time begins anew at the
	// begin and with each progress, up to a limit since the loss: if the server is slow, other watchers read as long, and
	// another leader gains nothing. If the way of the leader alone is slow, another watcher may have a connection.
	Patience = 15 * time.Second
	// leastLimit is the limit after a short first reading: with 1 000 hosts that connect anew, reading may take a minute.
	leastLimit = 3 * time.Minute
	// longer is the limit in first readings, if that is more.
	longer = 4
)

// Lost is the error of a leader without a connection for Patience, or up to the limit of reading.
type Lost struct {
	why   error
	limit time.Duration // of reading; 0: nothing was read for Patience
}

// Error implements error.
func (l Lost) Error() string {
	if l.limit > 0 {
		return fmt.Sprintf("the Northbound database is not connected for %s, though new connections read it (%v)", l.limit, l.why)
	}
	return fmt.Sprintf("the Northbound database is not connected for %s (%v)", Patience, l.why)
}

// Unwrap returns the reason for the loss of the connection.
func (l Lost) Unwrap() error { return l.why }

// Ended returns the Lost at the end of a context, nil without one.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.As(cause, new(Lost)) {
		return cause
	}
	return nil
}

// A Connection is the state of the connection to the Northbound database. The zero value is connected.
type Connection struct {
	mu      sync.Mutex
	why     error // it was lost; nil: connected
	since   time.Time
	heard   time.Time     // the last progress, or since
	first   time.Duration // of the first reading
	changed chan struct{} // closed by the next change; nil: nobody waits
}

// Up records a connection.
func (c *Connection) Up() { c.set(nil) }

// Down records the loss of the connection.
func (c *Connection) Down(why error) { c.set(why) }

// Read records how long the first connection read the database.
func (c *Connection) Read(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = took
}

// Progress records news of a connection still reading the database.
func (c *Connection) Progress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		c.heard = time.Now()
		c.tell()
	}
}

func (c *Connection) set(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why, c.since = why, time.Now()
	c.heard = c.since
	c.tell()
}

// tell tells of a change. The caller holds mu.
func (c *Connection) tell() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// state returns when the Lease ends, a channel that the next change closes, and the error of the end, nil with a connection.
func (c *Connection) state() (end time.Time, changed <-chan struct{}, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	if c.why == nil {
		return end, c.changed, nil
	}
	end, limit := c.heard.Add(Patience), max(leastLimit, longer*c.first)
	if last := c.since.Add(limit); last.Before(end) {
		return last, c.changed, Lost{c.why, limit}
	}
	return end, c.changed, Lost{why: c.why}
}

// Unable returns why this watcher must not take the Lease now, or nil.
func (c *Connection) Unable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		return nil
	}
	return fmt.Errorf("the Northbound database is not connected since %s: %w", c.since.UTC().Format(time.RFC3339), c.why)
}

// Within returns a context that ends with ctx, or with a Lost as its cause without a connection for too long. Call stop at
// the end.
func (c *Connection) Within(ctx context.Context) (within context.Context, stop func()) {
	within, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.watch(within, cancel)
	}()
	return within, func() {
		cancel(nil)
		<-ended
	}
}

// watch cancels ctx without a connection for too long. It returns when ctx is done.
func (c *Connection) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	for ctx.Err() == nil {
		end, changed, lost := c.state()
		var late <-chan time.Time
		if lost != nil {
			late = time.After(time.Until(end))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-late:
			cancel(lost)
		}
	}
}

// Describe names the leader and the begin of its term. leader is that of the token in the database, or unknown because of
// err. It differs from the holder of the Lease for the moment of a takeover.
func Describe(holder string, leader ovsdb.Leader, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("the watcher of %q has the Lease; since when is not known: %v", holder, err)
	case leader.Identity == holder:
		return fmt.Sprintf("the watcher of %q leads since %s (term %d)", holder, leader.Since.Format(time.RFC3339), leader.Term)
	}
	if strings.Count(holder, "/") != 2 {
		return fmt.Sprintf("%q has the Lease, which is no watcher of this version: stop it if it is an older one, whose writes are not fenced; taken by hand, the Lease expires. The database was last written by %s", holder, leader)
	}
	return fmt.Sprintf("the watcher of %q has the Lease; the database was last written by %s", holder, leader)
}
