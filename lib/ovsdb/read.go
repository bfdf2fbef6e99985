package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// read reads the tables of a new connection, for as long as its server is alive.
func (db *DB) read(ctx context.Context, c *conn) error {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := db.watchReading(ctx, c); err != nil {
			cancel(err)
		}
	}()
	_, err := abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) { return struct{}{}, db.follow(ctx, c) })
	cancel(nil)
	<-watched
	c.took = time.Since(start)
	return err
}

// watchReading logs the progress of a connection that reads the tables, and returns an error if the server
// does not answer on another connection either. On this one, no reply overtakes that with the tables.
func (db *DB) watchReading(ctx context.Context, c *conn) error {
	rows := c.rows()
	ticker := time.NewTicker(db.timeouts.probeInterval)
	defer ticker.Stop()
	for start := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		db.log.WithField("remote", c.remote).Infof("reading %s: %d rows so far, in %.0f s", db.options.Name, rows(), time.Since(start).Seconds())
		if err := db.alive(ctx, c.remote); err != nil && ctx.Err() == nil {
			return fmt.Errorf("reading the tables: the server no longer answers: %w", err)
		}
	}
}

// rows returns a function that counts the rows that c has read.
func (c *conn) rows() func() int {
	var tables []*cache.RowCache // of the cache itself nothing can be asked while it is filled
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
func (db *DB) alive(ctx context.Context, remote string) error {
	c, err := db.bareConn(remote)
	if err != nil {
		return err
	}
	defer c.drop(errNotNeeded)
	ctx, cancel := context.WithTimeout(ctx, db.timeouts.read)
	defer cancel()
	_, err = abandon(ctx, c.gone, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.connect(ctx) })
	return err
}

// follow reads the tables, in one monitor. The method is monitor_cond: monitor_cond_since would save nothing, see
// TestNoHistory. The dispatcher comes last: libovsdb would queue an event for each row that is read, and its queue
// drops events when it is full.
func (db *DB) follow(ctx context.Context, c *conn) error {
	requests := map[string]ovsdb.MonitorRequest{}
	tables := db.options.Tables
	if len(tables) == 0 {
		for name := range db.options.Model.Types() {
			tables = append(tables, Table{Name: name})
		}
	}
	for _, t := range tables {
		if len(t.Columns) == 0 {
			t.Columns = columns(db.options.Model.Types()[t.Name])
		}
		requests[t.Name] = ovsdb.MonitorRequest{Columns: t.Columns, Where: t.Where, Select: ovsdb.NewDefaultMonitorSelect()}
	}
	if _, err := c.rpc.call(ctx, ovsdb.ConditionalMonitorRPC, ovsdb.NewMonitorArgs(db.options.Model.Name(), "rows", requests)...); err != nil {
		return fmt.Errorf("reading the tables: %w", err)
	}
	if cache := c.client.Cache(); cache != nil { // else it is lost already
		cache.AddEventHandler(db.dispatcher())
	}
	c.told.Store(true)
	return nil
}

// unindex makes the cache, which is empty, again without indexes. In each of these, libovsdb has a map for each row.
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

// dropped ends a connection with whose changes the handlers could not keep up: the next one tells them all.
func (c *conn) dropped() {
	if c.told.Load() {
		go c.drop(errDropped) // its cache is locked
	}
}

var errDropped = errors.New("too many changes at once")
