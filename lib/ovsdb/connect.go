package ovsdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/bombsimon/logrusr/v4"
	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

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

// A dialer makes connections to the remotes of one database, and reads its tables.
type dialer struct {
	options  Options
	log      *logrus.Entry
	timeouts timeouts
	listeners
}

// dial connects to one remote and reads the tables.
func (d *dialer) dial(ctx context.Context, remote string) (*conn, error) {
	if strings.HasPrefix(remote, "ssl:") && d.options.TLS == nil {
		return nil, errors.New("ssl: needs a private key and a certificate")
	}
	c, err := d.newConn(d.options.Model, remote)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			c.drop(errNotNeeded)
		}
	}()
	if err := d.reach(ctx, c); err != nil {
		return nil, err
	}
	if d.options.Unindexed {
		c.unindex()
	}
	if !d.options.Unfollowed {
		if err := d.read(ctx, c); err != nil {
			return nil, err
		}
	}
	done = true
	return c, nil
}

// reach connects to the remote of c, and checks that it may be followed.
func (d *dialer) reach(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.dial)
	defer cancel()
	_, err := abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) {
		if err := c.connect(ctx); err != nil {
			return struct{}{}, d.explain(ctx, c.remote, err)
		}
		if err := d.connectRPC(ctx, c); err != nil {
			return struct{}{}, err
		}
		if !d.options.AnyMember {
			if err := d.followLeader(ctx, c); err != nil {
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
func (d *dialer) connectRPC(ctx context.Context, c *conn) error {
	err := untilAccepted(ctx, func() (err error) {
		c.rpc, err = jsonrpc.Dial(ctx, c.remote, d.options.TLS)
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
func (d *dialer) newConn(m model.ClientDBModel, remote string) (*conn, error) {
	c := &conn{remote: remote}
	logger := logrusr.New(d.log)
	logger = logger.WithSink(cacheLog{logger.GetSink(), &d.listeners, c})
	cl, err := client.NewOVSDBClient(m, client.WithEndpoint(endpoint(remote)), client.WithTLSConfig(d.options.TLS),
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
func (d *dialer) explain(ctx context.Context, remote string, err error) error {
	if strings.Contains(err.Error(), "validation error") {
		if why := d.explainSchema(ctx, remote); why != nil {
			return why
		}
	}
	if addr, ok := strings.CutPrefix(remote, "ssl:"); ok {
		if why := explainTLS(ctx, addr, d.options.TLS); why != nil {
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
func (d *dialer) bareConn(remote string) (*conn, error) {
	m, err := model.NewClientDBModel(d.options.Model.Name(), nil)
	if err != nil {
		return nil, err
	}
	return d.newConn(m, remote)
}

// explainSchema connects once more, without a model, to read the schema and name its missing tables and columns.
func (d *dialer) explainSchema(ctx context.Context, remote string) error {
	c, err := d.bareConn(remote)
	if err != nil {
		return err
	}
	defer c.drop(errNotNeeded)
	if err := c.client.Connect(ctx); err != nil {
		return err
	}
	return schemaError(d.options, c.client.Schema())
}

// watch returns when the connection is gone or ctx ends. It probes the server every probeInterval.
func (d *dialer) watch(ctx context.Context, c *conn) {
	ticker := time.NewTicker(d.timeouts.probeInterval)
	defer ticker.Stop()
	// While a server sends its tables to another client, it does not answer for about as long as c took to read
	// them.
	timeout := max(d.timeouts.probe, 2*c.took)
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
