package ovsdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"

	"github.com/bombsimon/logrusr/v4"
	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/jsonrpc"
)

// unreachable is the error if no remote of a database can be followed.
type unreachable struct {
	name string
	errs []error // of each remote
}

// Error is one line with each remote and its problem.
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

// reach connects to the remote of c, and checks that it may be followed.
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

// connectRPC connects c.rpc. c ends with it.
func (db *DB) connectRPC(ctx context.Context, c *conn) error {
	err := untilAccepted(ctx, func() (err error) {
		c.rpc, err = jsonrpc.Dial(ctx, c.remote, db.options.TLS)
		return err
	})
	if err != nil {
		return cmp.Or(jsonrpc.NetworkError(err), err)
	}
	context.AfterFunc(c.gone, c.rpc.Close)
	go func() { c.lose(c.rpc.Run(c.takeIn, &c.news)) }()
	return nil
}

// takeIn writes rows into the cache.
func (c *conn) takeIn(rows ovsdb.TableUpdates2) error {
	all := c.client.Cache()
	if all == nil {
		return ErrNotConnected
	}
	return all.Populate2(rows)
}

// untilAccepted calls connect, again after EAGAIN: a unix socket refuses connections while many others wait to be
// accepted (connect(2)).
func untilAccepted(ctx context.Context, connect func() error) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(busyRetry), backoff.WithMaxInterval(firstRetry), backoff.WithMaxElapsedTime(0))
	var err error
	_ = backoff.Retry(func() error { // its error is err or ctx's
		err = connect()
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(b, ctx))
	return err
}

// newConn makes a client without a connection, and watches for the end of the connection.
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
	// libovsdb drops the notification if no goroutine waits for it, so wait before the connection is made.
	go func() {
		select {
		case <-cl.DisconnectNotify():
			c.lose(errors.New("closed by the server"))
		case <-c.gone.Done():
		}
	}()
	return c, nil
}

// endpoint returns a remote as a URL for libovsdb.
func endpoint(remote string) string {
	if path, ok := strings.CutPrefix(remote, "unix:"); ok {
		return (&url.URL{Scheme: "unix", Path: path}).String()
	}
	return remote
}

// explain returns the reason of a failed connection in plain words.
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
	if err := jsonrpc.NetworkError(err); err != nil {
		return err
	}
	// libovsdb says "failed to connect to ENDPOINT: REASON".
	if _, reason, ok := strings.Cut(err.Error(), "failed to connect to "+endpoint(remote)+": "); ok {
		return errors.New(reason)
	}
	return err
}

// bareConn prepares a connection without a model: it reads no rows.
func (db *DB) bareConn(remote string) (*conn, error) {
	m, err := model.NewClientDBModel(db.options.Model.Name(), nil)
	if err != nil {
		return nil, err
	}
	return db.newConn(m, remote)
}

// explainSchema connects once more, without a model, to read the schema and name its missing tables and columns.
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
