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

var (
	// errNotLeader: the server is a member of a cluster without write access.
	errNotLeader = errors.New("not the leader of its cluster now: all its members should be given")
	// errNotNeeded ends a connection after its purpose.
	errNotNeeded = errors.New("not needed")
)

// followLeader returns errNotLeader if the database belongs to a cluster with another leader, and ends c when
// another server becomes the leader. ovsdb-server(5) describes the database _Server. It takes a connection of its
// own: a libovsdb client that follows the leader itself is never freed, nor is its cache.
func (d *dialer) followLeader(ctx context.Context, c *conn) error {
	m, err := model.NewClientDBModel("_Server", map[string]model.Model{serverdb.DatabaseTable: &serverdb.Database{}})
	if err != nil {
		return err
	}
	server, err := d.newConn(m, c.remote)
	if err != nil {
		return err
	}
	clustered, err := d.readLeader(ctx, server)
	if err != nil || !clustered {
		server.drop(errNotNeeded)
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
	return nil
}

// readLeader connects server to the database _Server, and reports whether our database is clustered. It drops
// server when another member becomes the leader.
func (d *dialer) readLeader(ctx context.Context, server *conn) (clustered bool, err error) {
	if err := server.connect(ctx); err != nil {
		return false, err
	}
	rows := server.client.Cache()
	if rows == nil {
		return false, ErrNotConnected
	}
	rows.AddEventHandler(&cache.EventHandlerFuncs{
		UpdateFunc: func(_ string, _, now model.Model) {
			if _, err := d.leads(now); err != nil {
				server.drop(err)
			}
		},
	})
	m := server.client.NewMonitor()
	m.Method = ovsdb.ConditionalMonitorRPC
	m.Tables = []client.TableMonitor{{Table: serverdb.DatabaseTable, Fields: []string{"name", "model", "leader"}}}
	if _, err := server.client.Monitor(ctx, m); err != nil {
		return false, fmt.Errorf("reading which server leads: %w", err)
	}
	for _, row := range rows.Table(serverdb.DatabaseTable).RowsShallow() {
		if clustered, err = d.leads(row); clustered {
			break
		}
	}
	return clustered, err
}

// leads reports whether a row of _Server's table Database describes our database as a member of a cluster, and
// returns errNotLeader if another member leads.
func (d *dialer) leads(row model.Model) (clustered bool, err error) {
	of := row.(*serverdb.Database)
	clustered = of.Name == d.options.Model.Name() && of.Model == serverdb.DatabaseModelClustered
	if clustered && !of.Leader {
		err = errNotLeader
	}
	return clustered, err
}
