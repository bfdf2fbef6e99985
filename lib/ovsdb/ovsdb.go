// Package ovsdb connects to OVSDB servers (RFC 7047): the Northbound database
// and, through package vswitch, the local Open vSwitch. A DB is one followed
// database; it stays the same over reconnects.
package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ovsdb/jsonrpc"
	"ovn-k8s/lib/reconcile"
)

const (
	// dialTimeout limits one attempt to connect to one remote. Reading its tables has no limit.
	dialTimeout = 10 * time.Second
	// probeInterval and probeTimeout detect peers gone without closing the connection.
	probeInterval = 5 * time.Second
	probeTimeout  = 10 * time.Second
	// readTimeout detects them while the tables are read. Writing the reply for a large database keeps ovsdb-server,
	// with its one thread, from answering for seconds.
	readTimeout = time.Minute
	// Reconnecting starts at once and slows down to one attempt in 5 s.
	firstRetry = 100 * time.Millisecond
	// A server too busy to accept is tried again sooner.
	busyRetry = 5 * time.Millisecond
	lastRetry = 5 * time.Second
	// steady is the age of a connection after whose loss reconnecting starts at once. Each connection reads all tables,
	// so a server that ends connections soon, such as one with too many clients, gets more and more time.
	steady = 10 * time.Second
	// electionTimeout bounds the wait of Open for a cluster's election. An election usually takes one or two
	// seconds.
	electionTimeout = 10 * time.Second
)

// ErrNotConnected means no connection to the database, or a connection lost before the answer: then the transaction
// may have been committed or not. It is libovsdb's own error, returned by package nbsync as well.
var ErrNotConnected = client.ErrNotConnected

// A Refused is a transaction refused by the server.
type Refused struct {
	// Index is the failed operation, or -1 if only the commit failed.
	Index int
	// Operation is its kind and table, as in "insert Logical_Switch_Port".
	Operation string
	// Err is the server's error: one of libovsdb's types, as
	// *ovsdb.ConstraintViolation.
	Err error
}

// Error names the refused operation and the reason.
func (r *Refused) Error() string {
	if r.Index < 0 {
		return fmt.Sprintf("committing: %v", r.Err)
	}
	return fmt.Sprintf("%s (operation %d): %v", r.Operation, r.Index, r.Err)
}

// Unwrap returns the server's error.
func (r *Refused) Unwrap() error { return r.Err }

// Options are the options of Open.
type Options struct {
	// Name is the database's name in messages, such as "NB".
	Name string
	// Remotes are its servers in the spelling of config.ParseRemotes.
	Remotes []string
	// TLS is for remotes with ssl:. See TLSConfig.
	TLS *tls.Config
	// Model is the part of the schema known to the client.
	Model model.ClientDBModel
	// Needs is the first release with all of Model, for messages: "OVN 23.03".
	Needs string
	// Tables are the tables to follow; none means all of Model with all columns.
	Tables []Table
	// Unfollowed follows no table: Select reads rows.
	Unfollowed bool
	// Unindexed saves memory: the client finds rows by UUID only, not by the indexes of the schema.
	Unindexed bool
	// AnyMember accepts a cluster member other than the leader. Its copy of the database may lag behind.
	AnyMember bool
	// Reading is called when a new connection begins to read the tables, and meanwhile every few seconds unless nothing came;
	// nil: not used.
	Reading func()
	// Log gets changes of the connection's state; nil is silent.
	Log *logrus.Entry

	timeouts timeouts // constant but for tests
}

// timeouts are the waits for a server. See the constants of these names.
type timeouts struct{ dial, read, probeInterval, probe time.Duration }

// DB is one followed database.
type DB struct {
	dialer
	transactions atomic.Uint64
	latestTerm   atomic.Uint64 // see noteTerm

	calls  sync.RWMutex // held for reading by calls of the server, for writing by Renew, so that it cuts off no call
	mu     sync.Mutex   // guards the fields below
	conn   *conn        // the latest; it may be gone
	closed bool         // it stays so
}

// A conn is one connection with a client of its own: libovsdb cannot abandon a call hanging in a dead socket, and
// its reconnect shows neither the rows deleted in between nor the reconnect itself.
type conn struct {
	client client.Client
	rpc    *jsonrpc.Conn // for rows and transactions; nil if no rows are read
	remote string
	took   time.Duration // to read the tables
	told   atomic.Bool   // handlers get changes
	news   atomic.Uint64 // counts rows and other messages
	// gone is done when the connection is; its cause is the reason.
	gone context.Context
	lose context.CancelCauseFunc
}

// Open connects to the first remote that answers and waits until its tables are read. A lost connection is renewed
// by Run only. The error is one line with each remote and its problem.
func Open(ctx context.Context, o Options) (*DB, error) {
	db := &DB{dialer: dialer{options: o, log: o.Log, timeouts: o.timeouts}}
	if db.timeouts == (timeouts{}) {
		db.timeouts = timeouts{dialTimeout, readTimeout, probeInterval, probeTimeout}
	}
	if db.log == nil {
		db.log = logrus.NewEntry(&logrus.Logger{}) // writes nothing
	}
	if len(o.Remotes) == 0 {
		return nil, fmt.Errorf("connecting to %s: no address", o.Name)
	}
	if err := db.open(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

// open connects to any of the remotes. It waits while a cluster elects a leader. The wait starts after each member
// was asked once, because a hanging member, such as the former leader, takes all of dialTimeout.
func (db *DB) open(ctx context.Context) error {
	err := db.connect(ctx)
	if !errors.Is(err, errNotLeader) {
		return err
	}
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(electionTimeout))
	_ = backoff.Retry(func() error { // its error is err or ctx's
		err = db.connect(ctx)
		if err != nil && !errors.Is(err, errNotLeader) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(b, ctx))
	return err
}

// Close ends the connection. Run does so, too, when it returns.
func (db *DB) Close() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.closed = true
	if db.conn != nil {
		db.conn.drop(errClosed)
	}
}

// The reasons for the end of a connection.
var (
	errClosed  = errors.New("closed")
	errRenewed = errors.New("renewed")
)

// install replaces a connection by another, which is dropped if the former one was replaced meanwhile, or the DB closed.
// The error is errClosed.
func (db *DB) install(c, former *conn) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		c.drop(errClosed)
		return errClosed
	}
	if db.conn != former {
		c.drop(errRenewed)
		return nil
	}
	db.conn = c
	if former != nil {
		former.drop(errRenewed)
	}
	return nil
}

// Client returns the client of the present connection, or nil. Its cache is complete. After the connection is lost,
// List and Get of the client answer from the last state. For its cache, call DB.Cache.
func (db *DB) Client() client.Client {
	if c := db.current(); c != nil {
		return c.client
	}
	return nil
}

// Cache returns the complete copy of the followed tables, or nil without a connection. Keep it while you read: at the loss of
// the connection the next call returns nil.
func (db *DB) Cache() *cache.TableCache {
	if c := db.current(); c != nil {
		return c.client.Cache()
	}
	return nil
}

// Remote returns the connected remote, or an empty string.
func (db *DB) Remote() string {
	if c := db.current(); c != nil {
		return c.remote
	}
	return ""
}

// Transactions returns the number of transactions sent.
func (db *DB) Transactions() uint64 { return db.transactions.Load() }

// current returns the connection, or nil if it is gone.
func (db *DB) current() *conn {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.conn == nil || db.conn.gone.Err() != nil {
		return nil
	}
	return db.conn
}

// Run keeps the connection until ctx ends, then closes it and returns ctx's cause. It calls onUp for the present
// connection and each new one, when its cache is complete, and onDown when it is lost; either may be nil. Both are
// called from one goroutine, one at a time.
func (db *DB) Run(ctx context.Context, onUp func(), onDown func(error)) error {
	defer db.Close()
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
	for {
		up := time.Now()
		if c := db.current(); c != nil {
			if onUp != nil {
				onUp()
			}
			db.watch(ctx, c)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if db.current() != nil {
			continue // Renew made it
		}
		err := db.whyDown()
		db.log.WithError(err).Warnf("lost the connection to %s, reconnecting", db.options.Name)
		if onDown != nil {
			onDown(err)
		}
		if time.Since(up) > steady {
			pauses.Reset()
		} else if err := pause(ctx, pauses.NextBackOff()); err != nil {
			return err
		}
		if err := db.reconnect(ctx); err != nil {
			return err
		}
		db.log.WithField("remote", db.Remote()).Infof("reconnected to %s", db.options.Name)
	}
}

// pause waits. The error is the cause of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Renew replaces the connection by another to the same server. libovsdb's caches never release memory of deleted
// rows; the new cache holds the present rows only. No call is cut off, and Run calls onUp. Without a connection it
// does nothing.
func (db *DB) Renew(ctx context.Context) error {
	old := db.current()
	if old == nil {
		return nil
	}
	c, err := db.dial(ctx, old.remote)
	if err != nil {
		return fmt.Errorf("renewing the connection to %s at %s: %w", db.options.Name, old.remote, err)
	}
	db.calls.Lock()
	defer db.calls.Unlock()
	ctx, cancel := context.WithTimeout(ctx, db.timeouts.dial)
	defer cancel()
	if err := db.sync(ctx, c); err != nil { // its cache must be as new as old's
		c.drop(err)
		return err
	}
	_ = db.install(c, old) // a closed DB needs none
	return nil
}

// whyDown returns the reason for the end of the last connection.
func (db *DB) whyDown() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return fmt.Errorf("connection to %s at %s: %w", db.options.Name, db.conn.remote, context.Cause(db.conn.gone))
}

// reconnect tries until it succeeds or ctx ends. It warns when the reason changes, not of each attempt.
func (db *DB) reconnect(ctx context.Context) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
	warned := ""
	err := backoff.RetryNotify(func() error {
		if err := db.connect(ctx); !errors.Is(err, errClosed) {
			return err
		}
		return backoff.Permanent(errClosed)
	}, backoff.WithContext(b, ctx), func(err error, _ time.Duration) {
		if reason := reconcile.Reason(err); reason != warned {
			warned = reason
			db.log.Warn(err)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// connect tries each remote once.
func (db *DB) connect(ctx context.Context) error {
	db.mu.Lock()
	former := db.conn
	db.mu.Unlock()
	var errs []error
	for _, remote := range db.options.Remotes {
		c, err := db.dial(ctx, remote)
		if err == nil {
			return db.install(c, former)
		}
		errs = append(errs, fmt.Errorf("%s: %w", remote, err))
	}
	return &unreachable{db.options.Name, errs}
}

// drop ends a connection. It does not wait for libovsdb, which waits for calls hanging in a dead socket.
func (c *conn) drop(why error) {
	c.lose(why)
	go c.client.Close()
}

// probe sends an echo (RFC 7047 section 4.1.11).
func (c *conn) probe(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) {
		_, err := c.rpc.Call(ctx, "echo")
		return struct{}{}, err
	})
	return err
}
