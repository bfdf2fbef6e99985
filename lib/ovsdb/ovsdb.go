// Package ovsdb connects to OVSDB servers (RFC 7047): the Northbound database
// and, through package vswitch, the local Open vSwitch. A DB is one followed
// database; it stays the same over reconnects.
package ovsdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bombsimon/logrusr/v4"
	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"
)

const (
	// dialTimeout limits one attempt to connect to one remote. Reading its tables has no limit.
	dialTimeout = 10 * time.Second
	// probeInterval and probeTimeout find peers that are gone without a word.
	probeInterval = 5 * time.Second
	probeTimeout  = 10 * time.Second
	// readTimeout finds them while the tables are read. Writing the reply for a large database
	// keeps ovsdb-server, which has one thread, from answering for seconds.
	readTimeout = time.Minute
	// Reconnecting starts at once and slows down to one attempt in 5 s.
	firstRetry = 100 * time.Millisecond
	// A server that is too busy to accept is tried again sooner.
	busyRetry = 5 * time.Millisecond
	lastRetry = 5 * time.Second
	// electionTimeout is how long Open waits for a cluster to elect a leader. The
	// usual election takes one or two seconds.
	electionTimeout = 10 * time.Second
)

// ErrNotConnected means that there is no connection to the database, or that
// it was lost before the answer came: then the transaction may have been
// committed or not. It is libovsdb's own, which package nbsync returns as well.
var ErrNotConnected = client.ErrNotConnected

// A Refused is a transaction that the server did not commit.
type Refused struct {
	// Index is the operation that failed, or -1 if all were fine but the
	// commit was not.
	Index int
	// Operation is its kind and table, as in "insert Logical_Switch_Port".
	Operation string
	// Err is the server's error: one of libovsdb's types, as
	// *ovsdb.ConstraintViolation.
	Err error
}

// Error says what was refused and why.
func (r *Refused) Error() string {
	if r.Index < 0 {
		return fmt.Sprintf("committing: %v", r.Err)
	}
	return fmt.Sprintf("%s (operation %d): %v", r.Operation, r.Index, r.Err)
}

// Unwrap returns the server's error.
func (r *Refused) Unwrap() error { return r.Err }

// Options says which database to follow, and how.
type Options struct {
	// Name is the database's in messages, as "NB".
	Name string
	// Remotes are its servers in the spelling of config.ParseRemotes.
	Remotes []string
	// TLS is for remotes with ssl:. See TLSConfig.
	TLS *tls.Config
	// Model is what the client knows of the schema.
	Model model.ClientDBModel
	// Needs is the release that has all of Model, for messages: "OVN 23.03".
	Needs string
	// Tables to be followed; none means all of Model with all columns.
	Tables []Table
	// Unfollowed has no table followed: rows are read by Select.
	Unfollowed bool
	// Unindexed saves memory: the client finds rows by UUID only, not by the indexes of the schema.
	Unindexed bool
	// AnyMember also takes a member of a cluster that is not its leader, whose
	// view of the database may lag behind.
	AnyMember bool
	// Log gets changes of the connection's state; nil is silent.
	Log *logrus.Entry

	timeouts timeouts // constant but for tests
}

// timeouts say how long to wait for a server. See the constants of these names.
type timeouts struct{ dial, read, probeInterval, probe time.Duration }

// DB is one followed database.
type DB struct {
	options      Options
	log          *logrus.Entry
	transactions atomic.Uint64
	latestTerm   atomic.Uint64 // see noteTerm
	timeouts     timeouts

	calls    sync.RWMutex // read by calls of the server that must not be cut off, written by Renew
	mu       sync.Mutex
	conn     *conn                 // the latest; it may be gone
	handlers []*cache.EventHandler // of Handle; changed as a whole
	onRow    []*func(table, uuid string)
}

// A conn is one connection. Each has a client of its own: libovsdb cannot
// abandon a call that hangs in a dead socket, and its reconnect shows neither
// what was deleted meanwhile nor that it happened.
type conn struct {
	client client.Client
	rpc    *rpc // rows come in and transactions are sent by it; nil where nothing of ours is read
	remote string
	took   time.Duration // to read the tables
	told   atomic.Bool   // handlers are told of changes
	news   atomic.Uint64 // counts rows and what else comes
	// gone is done when the connection is; its cause says why.
	gone context.Context
	lose context.CancelCauseFunc
}

// Open connects to the first remote that answers and waits until its tables
// are read. Without a call of Run the connection is not renewed when lost.
// The error is one line that names each remote and what is wrong with it.
func Open(ctx context.Context, o Options) (*DB, error) {
	db := &DB{options: o, log: o.Log, timeouts: o.timeouts}
	if db.timeouts == (timeouts{}) {
		db.timeouts = timeouts{dialTimeout, readTimeout, probeInterval, probeTimeout}
	}
	if db.log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		db.log = logrus.NewEntry(silent)
	}
	if len(o.Remotes) == 0 {
		return nil, fmt.Errorf("connecting to %s: no address", o.Name)
	}
	if err := db.open(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

// open connects to any of the remotes. While a cluster elects a leader, it waits:
// from when all members were asked once, since one that hangs, as the former leader
// may, takes all of dialTimeout.
func (db *DB) open(ctx context.Context) error {
	err := db.connect(ctx)
	if !errors.Is(err, errNotLeader) {
		return err
	}
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(electionTimeout))
	_ = backoff.Retry(func() error { // which returns err, or that ctx has ended
		err = db.connect(ctx)
		if err != nil && !errors.Is(err, errNotLeader) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(b, ctx))
	return err
}

// Close ends the connection. Nothing needs it after Run has returned.
func (db *DB) Close() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.conn != nil {
		db.conn.drop(errors.New("closed"))
	}
}

// Handle has h called for all changes of the cache, in order, on this and
// all later connections. What changed between two connections is not told, and of the
// rows that a connection begins with perhaps some are told as added: onUp of Run is the
// time to compare. h must not block. Nothing of it is
// kept after a call of remove, but a call of h may be under way then.
func (db *DB) Handle(h cache.EventHandler) (remove func()) {
	entry := &h
	db.mu.Lock()
	defer db.mu.Unlock()
	db.handlers = append(slices.Clone(db.handlers), entry)
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.handlers = slices.DeleteFunc(slices.Clone(db.handlers), func(other *cache.EventHandler) bool { return other == entry })
	}
}

// each calls f with each handler.
func (db *DB) each(f func(cache.EventHandler)) {
	db.mu.Lock()
	handlers := db.handlers
	db.mu.Unlock()
	for _, h := range handlers {
		f(*h)
	}
}

// dispatcher is the one handler that a connection's cache gets, which never
// gives one back.
func (db *DB) dispatcher() cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc: func(table string, m model.Model) {
			db.each(func(h cache.EventHandler) { h.OnAdd(table, m) })
		},
		UpdateFunc: func(table string, before, after model.Model) {
			db.each(func(h cache.EventHandler) { h.OnUpdate(table, before, after) })
		},
		DeleteFunc: func(table string, m model.Model) {
			db.each(func(h cache.EventHandler) { h.OnDelete(table, m) })
		},
	}
}

// Client returns the client of the connection there is, or nil. Its cache is
// complete. After the connection is lost, List and Get of the client answer as
// of then, and its method Cache returns nil.
func (db *DB) Client() client.Client {
	if c := db.current(); c != nil {
		return c.client
	}
	return nil
}

// Remote returns the remote that db is connected to, or an empty string.
func (db *DB) Remote() string {
	if c := db.current(); c != nil {
		return c.remote
	}
	return ""
}

// Transactions returns how many transactions were sent.
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

// Run keeps the connection until ctx ends, and then closes it and returns
// ctx's cause. It calls onUp for the connection there is and for each new one,
// when its cache is complete, and onDown when it is lost; either may be nil.
// Both are called from one goroutine, one at a time.
func (db *DB) Run(ctx context.Context, onUp func(), onDown func(error)) error {
	defer db.Close()
	for {
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
		if err := db.reconnect(ctx); err != nil {
			return err
		}
		db.log.WithField("remote", db.Remote()).Infof("reconnected to %s", db.options.Name)
	}
}

// errRenewed ends a connection that another has replaced.
var errRenewed = errors.New("renewed")

// Renew replaces the connection by another to the same server. The caches of
// libovsdb keep the memory of as many rows as they ever had; the new one has that of
// the rows there are. No call is cut off, and Run calls onUp. Without a connection it does nothing.
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
	if err := db.sync(ctx, c); err != nil { // its cache must have what old's has
		c.drop(err)
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.conn != old { // lost meanwhile, and there is another
		c.drop(errRenewed)
		return nil
	}
	db.conn = c
	old.drop(errRenewed)
	return nil
}

// whyDown returns what ended the last connection.
func (db *DB) whyDown() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return fmt.Errorf("connection to %s at %s: %w", db.options.Name, db.conn.remote, context.Cause(db.conn.gone))
}

// reconnect tries until it succeeds or ctx ends. It warns once of each reason
// in turn, not of each attempt.
func (db *DB) reconnect(ctx context.Context) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
	warned := ""
	err := backoff.RetryNotify(func() error { return db.connect(ctx) }, backoff.WithContext(b, ctx), func(err error, _ time.Duration) {
		if err.Error() != warned {
			db.log.Warn(err)
		}
		warned = err.Error()
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// connect tries each remote once.
func (db *DB) connect(ctx context.Context) error {
	var errs []error
	for _, remote := range db.options.Remotes {
		c, err := db.dial(ctx, remote)
		if err == nil {
			db.mu.Lock()
			db.conn = c
			db.mu.Unlock()
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", remote, err))
	}
	return &unreachable{db.options.Name, errs}
}

// unreachable is the error of a database none of whose remotes answers as it should.
type unreachable struct {
	name string
	errs []error // of each remote
}

// Error is one line that names each remote and what is wrong with it.
func (u *unreachable) Error() string {
	var all []string
	for _, err := range u.errs {
		all = append(all, err.Error())
	}
	return fmt.Sprintf("connecting to %s at %s", u.name, strings.Join(all, "; at "))
}

// Unwrap returns the errors of all remotes.
func (u *unreachable) Unwrap() []error { return u.errs }

// dial connects to one remote and reads the tables.
func (db *DB) dial(ctx context.Context, remote string) (*conn, error) {
	if strings.HasPrefix(remote, "ssl:") && db.options.TLS == nil {
		return nil, errors.New("ssl: needs a private key and a certificate")
	}
	c, err := db.newConn(db.options.Model, remote)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			c.drop(errNotNeeded)
		}
	}()
	if err := db.reach(ctx, c); err != nil {
		return nil, err
	}
	if db.options.Unindexed {
		c.unindex()
	}
	if !db.options.Unfollowed {
		if err := db.read(ctx, c); err != nil {
			return nil, err
		}
	}
	done = true
	return c, nil
}

// reach connects to the remote of c, and finds out whether it is the one to follow.
func (db *DB) reach(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, db.timeouts.dial)
	defer cancel()
	_, err := abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) {
		if err := c.connect(ctx); err != nil {
			return struct{}{}, db.explain(ctx, c.remote, err)
		}
		if err := db.connectRPC(ctx, c); err != nil {
			return struct{}{}, err
		}
		if !db.options.AnyMember {
			if err := db.followLeader(ctx, c); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// connect connects the client.
func (c *conn) connect(ctx context.Context) error {
	return untilAccepted(ctx, func() error { return c.client.Connect(ctx) })
}

// connectRPC connects the rpc of c. When it ends, so does c.
func (db *DB) connectRPC(ctx context.Context, c *conn) error {
	err := untilAccepted(ctx, func() (err error) {
		c.rpc, err = dialRPC(ctx, c.remote, db.options.TLS)
		return err
	})
	if err != nil {
		return cmp.Or(plain(err), err)
	}
	context.AfterFunc(c.gone, func() { c.rpc.conn.Close() })
	go func() { c.lose(c.rpc.run(c.takeIn, &c.news)) }()
	return nil
}

// takeIn takes rows into the cache.
func (c *conn) takeIn(rows ovsdb.TableUpdates2) error {
	all := c.client.Cache()
	if all == nil {
		return ErrNotConnected
	}
	return all.Populate2(rows)
}

// untilAccepted calls connect. A unix socket whose server has many connections to
// accept refuses more for a moment (EAGAIN of connect(2)): then it tries again.
func untilAccepted(ctx context.Context, connect func() error) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(busyRetry), backoff.WithMaxInterval(firstRetry), backoff.WithMaxElapsedTime(0))
	var err error
	_ = backoff.Retry(func() error { // which returns err, or that ctx has ended
		err = connect()
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(b, ctx))
	return err
}

// newConn makes a client that is not connected yet, and the watch that tells
// when it no longer is.
func (db *DB) newConn(m model.ClientDBModel, remote string) (*conn, error) {
	c := &conn{remote: remote}
	logger := logrusr.New(db.log)
	logger = logger.WithSink(cacheLog{logger.GetSink(), db, c})
	cl, err := client.NewOVSDBClient(m, client.WithEndpoint(endpoint(remote)), client.WithTLSConfig(db.options.TLS),
		client.WithLogger(&logger))
	if err != nil {
		return nil, err
	}
	c.client = cl
	c.gone, c.lose = context.WithCancelCause(context.Background())
	// libovsdb drops the notification if nobody waits for it, so this must
	// wait before there is a connection to be lost.
	go func() {
		select {
		case <-cl.DisconnectNotify():
			c.lose(errors.New("closed by the server"))
		case <-c.gone.Done():
		}
	}()
	return c, nil
}

// endpoint spells a remote as libovsdb wants it, which reads it as a URL.
func endpoint(remote string) string {
	if path, ok := strings.CutPrefix(remote, "unix:"); ok {
		return (&url.URL{Scheme: "unix", Path: path}).String()
	}
	return remote
}

// explain finds the plain reason of a connection's failure.
func (db *DB) explain(ctx context.Context, remote string, err error) error {
	if strings.Contains(err.Error(), "validation error") {
		if why := db.explainSchema(ctx, remote); why != nil {
			return why
		}
	}
	if addr, ok := strings.CutPrefix(remote, "ssl:"); ok {
		if why := explainTLS(ctx, addr, db.options.TLS); why != nil {
			return why
		}
	}
	if err := plain(err); err != nil {
		return err
	}
	// libovsdb says "failed to connect to ENDPOINT: REASON".
	if _, reason, ok := strings.Cut(err.Error(), "failed to connect to "+endpoint(remote)+": "); ok {
		return errors.New(reason)
	}
	return err
}

// plain returns what a network error says without the address, or nil if err
// is none.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return nil
}

// bareConn prepares a connection without a model: it reads no rows.
func (db *DB) bareConn(remote string) (*conn, error) {
	m, err := model.NewClientDBModel(db.options.Model.Name(), nil)
	if err != nil {
		return nil, err
	}
	return db.newConn(m, remote)
}

// explainSchema connects once more, without a model, to read the schema and
// say what it lacks.
func (db *DB) explainSchema(ctx context.Context, remote string) error {
	c, err := db.bareConn(remote)
	if err != nil {
		return err
	}
	defer c.drop(errNotNeeded)
	if err := c.client.Connect(ctx); err != nil {
		return err
	}
	return schemaError(db.options, c.client.Schema())
}

// drop ends a connection. It does not wait for libovsdb, which waits for calls
// that hang in a dead socket.
func (c *conn) drop(why error) {
	c.lose(why)
	go c.client.Close()
}

// watch returns when the connection is gone or ctx ends. It asks the server
// for a sign of life now and then.
func (db *DB) watch(ctx context.Context, c *conn) {
	ticker := time.NewTicker(db.timeouts.probeInterval)
	defer ticker.Stop()
	// A server that sends its tables to another client is deaf about as long as when it sent them to c.
	timeout := max(db.timeouts.probe, 2*c.took)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.gone.Done():
			return
		case <-ticker.C:
			before := c.news.Load()
			if err := c.probe(ctx, timeout); err != nil && ctx.Err() == nil && c.news.Load() == before { // else it is behind large updates
				c.drop(fmt.Errorf("no answer to a probe: %w", err))
				return
			}
		}
	}
}

// probe sends an echo (RFC 7047 section 4.1.11).
func (c *conn) probe(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) {
		_, err := c.rpc.call(ctx, "echo")
		return struct{}{}, err
	})
	return err
}

// abandon calls f and waits until it returns, ctx ends or the connection is
// gone. f may stay behind in a write to a dead socket until the kernel gives
// up.
func abandon[T any](ctx, gone context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		done <- result{v, err}
	}()
	var none T
	select {
	case r := <-done:
		if r.err != nil && errors.Is(r.err, ctx.Err()) {
			r.err = context.Cause(ctx)
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-gone.Done():
		return none, fmt.Errorf("%w: %w", ErrNotConnected, context.Cause(gone))
	}
}

// Transact commits operations as one transaction and returns their results.
// The error is a *Refused if the server did not commit, and ErrNotConnected if
// there was no connection or it was lost meanwhile. When Transact returns, the
// cache has the change.
func (db *DB) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	db.calls.RLock()
	defer db.calls.RUnlock()
	c := db.current()
	if c == nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	start := time.Now()
	db.transactions.Add(1)
	results, err := abandon(ctx, c.gone, func(ctx context.Context) ([]ovsdb.OperationResult, error) {
		return c.rpc.transact(ctx, db.options.Model.Name(), ops...)
	})
	if err == nil {
		err = refusal(results, ops)
	} else {
		err = c.lost(ctx, err)
	}
	db.log.WithFields(logrus.Fields{"operations": len(ops), "ms": time.Since(start).Milliseconds()}).Debugf("transaction to %s", db.options.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, err)
	}
	return results, nil
}

// Sync waits until the cache has everything that anybody committed before the
// call. It writes nothing and is not counted as a transaction: the server sends
// the updates that are due before it answers one, even one that only reads.
func (db *DB) Sync(ctx context.Context) error {
	db.calls.RLock()
	defer db.calls.RUnlock()
	c := db.current()
	if c == nil {
		return fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	return db.sync(ctx, c)
}

// sync is Sync for one connection.
func (db *DB) sync(ctx context.Context, c *conn) error {
	for table := range db.options.Model.Types() {
		none := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: "00000000-0000-0000-0000-000000000000"})
		read := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Where: []ovsdb.Condition{none}, Columns: []string{"_uuid"}}
		_, err := abandon(ctx, c.gone, func(ctx context.Context) ([]ovsdb.OperationResult, error) {
			return c.rpc.transact(ctx, db.options.Model.Name(), read)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", db.options.Name, c.lost(ctx, err))
		}
		break
	}
	return nil
}

// lost tells a lost connection from other errors of a call.
func (c *conn) lost(ctx context.Context, err error) error {
	if errors.Is(err, ErrNotConnected) || ctx.Err() != nil {
		return err
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: connection lost", ErrNotConnected)
		}
	}
	return &Refused{Index: -1, Err: err}
}

// refusal returns the first failure in the results of a transaction
// (RFC 7047 section 4.1.3), or nil. Transact of libovsdb does not look.
func refusal(results []ovsdb.OperationResult, ops []ovsdb.Operation) error {
	errs, err := ovsdb.CheckOperationResults(results, ops)
	if err == nil {
		return nil
	}
	for i, r := range results {
		if r.Error == "" || i >= len(ops) || len(errs) == 0 {
			continue
		}
		return &Refused{Index: i, Operation: ops[i].Op + " " + ops[i].Table, Err: errs[0]}
	}
	return &Refused{Index: -1, Err: err}
}
