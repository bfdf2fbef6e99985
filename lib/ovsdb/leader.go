package ovsdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/ovn-kubernetes/libovsdb/ovsdb/serverdb"
)

// errNotLeader says of a member of a cluster that it cannot be written to.
var errNotLeader = errors.New("not the leader of its cluster now: all its members should be given")

// followLeader returns errNotLeader if the server does not lead the cluster of the
// database, and ends c when it no longer does. ovsdb-server(5) describes what it
// reads. It has a connection of its own: a client of libovsdb that watches this
// itself is never freed, nor is its cache.
func (db *DB) followLeader(ctx context.Context, c *conn) error {
	m, err := model.NewClientDBModel("_Server", map[string]model.Model{serverdb.DatabaseTable: &serverdb.Database{}})
	if err != nil {
		return err
	}
	server, err := db.newConn(m, c.remote)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-c.gone.Done():
			server.drop(context.Cause(c.gone))
		case <-server.gone.Done():
			c.drop(context.Cause(server.gone))
		}
	}()
	if err := server.connect(ctx); err != nil {
		return err
	}
	check := func(row model.Model) error {
		d := row.(*serverdb.Database)
		if d.Name == db.options.Model.Name() && d.Model == serverdb.DatabaseModelClustered && !d.Leader {
			return errNotLeader
		}
		return nil
	}
	return server.followRows(ctx, serverdb.DatabaseTable, []string{"name", "model", "leader"}, check)
}

// followRows returns the first error that check has for the rows of a table, and
// drops c with the first for what they become.
func (c *conn) followRows(ctx context.Context, table string, columns []string, check func(model.Model) error) error {
	rows := c.client.Cache()
	if rows == nil {
		return ErrNotConnected
	}
	rows.AddEventHandler(&cache.EventHandlerFuncs{
		UpdateFunc: func(_ string, _, now model.Model) {
			if err := check(now); err != nil {
				c.drop(err)
			}
		},
	})
	m := c.client.NewMonitor()
	m.Method = ovsdb.ConditionalMonitorRPC
	m.Tables = []client.TableMonitor{{Table: table, Fields: columns}}
	if _, err := c.client.Monitor(ctx, m); err != nil {
		return fmt.Errorf("reading %s: %w", table, err)
	}
	for _, row := range rows.Table(table).RowsShallow() {
		if err := check(row); err != nil {
			return err
		}
	}
	return nil
}
