package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// read reads the tables of a new connection, without a limit as long as the server is alive.
func (d *dialer) read(ctx context.Context, c *conn) error {
	start := time.Now()
	d.progress() // the server answers; another one may have taken all of dialTimeout before
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := d.watchReading(ctx, c); err != nil {
			cancel(err)
		}
	}()
	_, err := abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) { return struct{}{}, d.follow(ctx, c) })
	cancel(nil)
	<-watched
	c.took = time.Since(start)
	return err
}

// watchReading logs and reports the progress of a connection reading its tables. It returns an error if nothing comes, and
// the server does not answer on another connection either. On the first connection, no reply overtakes the tables.
func (d *dialer) watchReading(ctx context.Context, c *conn) error {
	rows, news := c.rows(), c.news.Load()
	ticker := time.NewTicker(d.timeouts.probeInterval)
	defer ticker.Stop()
	var asked chan error // another connection; nil: none
	for start := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-asked:
			asked = nil
			if err != nil && ctx.Err() == nil && c.news.Load() == news {
				return fmt.Errorf("reading the tables: the server no longer answers: %w", err)
			}
		case <-ticker.C:
			d.log.WithField("remote", c.remote).Infof("reading %s: %d rows so far, in %.0f s", d.options.Name, rows(), time.Since(start).Seconds())
			switch now := c.news.Load(); {
			case now != news:
				news = now
				d.progress()
			case asked == nil:
				asked = make(chan error, 1)
				go func(asked chan<- error) { asked <- d.alive(ctx, c.remote) }(asked)
			}
		}
	}
}

// progress reports the reading of tables.
func (d *dialer) progress() {
	if d.options.Reading != nil {
		d.options.Reading()
	}
}

// rows returns a function to count the rows read by c.
func (c *conn) rows() func() int {
	var tables []*cache.RowCache // the cache itself cannot be read while it is filled
	if all := c.client.Cache(); all != nil {
		for _, name := range all.Tables() {
			tables = append(tables, all.Table(name))
		}
	}
	return func() (n int) {
		for _, t := range tables {
			n += t.Len()
		}
		return n
	}
}

// alive is an error if a remote does not answer on a connection of its own.
func (d *dialer) alive(ctx context.Context, remote string) error {
	c, err := d.bareConn(remote)
	if err != nil {
		return err
	}
	defer c.drop(errNotNeeded)
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.read)
	defer cancel()
	_, err = abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.connect(ctx) })
	return err
}

// follow reads the tables, in one monitor. The method is monitor_cond: monitor_cond_since would save nothing, see
// TestNoHistory. The dispatcher comes last: libovsdb would queue an event for each row read, and a full queue drops
// events.
func (d *dialer) follow(ctx context.Context, c *conn) error {
	requests := map[string]ovsdb.MonitorRequest{}
	tables := d.options.Tables
	if len(tables) == 0 {
		for name := range d.options.Model.Types() {
			tables = append(tables, Table{Name: name})
		}
	}
	for _, t := range tables {
		if len(t.Columns) == 0 {
			t.Columns = slices.Sorted(maps.Keys(columns(d.options.Model.Types()[t.Name])))
		}
		requests[t.Name] = ovsdb.MonitorRequest{Columns: t.Columns, Where: t.Where, Select: ovsdb.NewDefaultMonitorSelect()}
	}
	if _, err := c.rpc.Call(ctx, ovsdb.ConditionalMonitorRPC, ovsdb.NewMonitorArgs(d.options.Model.Name(), "rows", requests)...); err != nil {
		return fmt.Errorf("reading the tables: %w", err)
	}
	if cache := c.client.Cache(); cache != nil { // else it is lost already
		cache.AddEventHandler(d.listeners.dispatcher())
	}
	c.told.Store(true)
	return nil
}

// unindex makes the empty cache again without indexes. For each index, libovsdb has a map entry per row.
func (c *conn) unindex() {
	all := c.client.Cache()
	if all == nil { // lost already
		return
	}
	m := all.DatabaseModel()
	m.Schema.Tables = maps.Clone(m.Schema.Tables)
	for name, t := range m.Schema.Tables {
		t.Indexes = nil
		m.Schema.Tables[name] = t
	}
	all.Purge(m)
}

// dropped ends a connection after the handlers missed changes: the next connection has them all.
func (c *conn) dropped() {
	if c.told.Load() {
		go c.drop(errDropped) // asynchronous: the cache is locked here
	}
}

var errDropped = errors.New("too many changes at once")
