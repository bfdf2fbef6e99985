// Package dbserver configures the server of an OVN database: the row Connection by which it listens, and the row SSL with its
// files (ovn-nb(5), ovn-sb(5)).
package dbserver

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ovsdb"
)

// Databases.
const (
	Northbound = "OVN_Northbound"
	Southbound = "OVN_Southbound"
)

// A Server is what the server of a database should do.
type Server struct {
	Database string // Northbound or Southbound
	Socket   string // unix socket of the server
	Target   string // as in "pssl:6641"
	ovsdb.Files
}

// global is the table with one row that has the connections.
func (s Server) global() string {
	return map[string]string{Northbound: "NB_Global", Southbound: "SB_Global"}[s.Database]
}

// Configure makes the server listen at the target with the files, and reports whether it changed anything. Other connections
// stay as they are. ours are external_ids for a new connection.
func (s Server) Configure(ctx context.Context, ours map[string]string, log *logrus.Entry) (bool, error) {
	db, err := s.open(ctx, log)
	if err != nil {
		return false, err
	}
	defer db.Close()
	ops, err := s.plan(ctx, db, ours)
	if err != nil || len(ops) == 0 {
		return false, err
	}
	if _, err := db.Transact(ctx, ops); err != nil {
		return false, fmt.Errorf("configuring the server of %s: %w", s.Database, err)
	}
	return true, nil
}

// Differs reports whether Configure would change anything.
func (s Server) Differs(ctx context.Context) (bool, error) {
	db, err := s.open(ctx, nil)
	if err != nil {
		return false, err
	}
	defer db.Close()
	ops, err := s.plan(ctx, db, nil)
	return len(ops) > 0, err
}

func (s Server) open(ctx context.Context, log *logrus.Entry) (*ovsdb.DB, error) {
	m, err := model.NewClientDBModel(s.Database, nil)
	if err != nil {
		return nil, err
	}
	return ovsdb.Open(ctx, ovsdb.Options{Name: s.Database, Remotes: []string{"unix:" + s.Socket}, Model: m, Unfollowed: true, AnyMember: true, Log: log})
}

// plan returns the operations of Configure, none if nothing differs.
func (s Server) plan(ctx context.Context, db *ovsdb.DB, ours map[string]string) ([]libovsdb.Operation, error) {
	found, err := db.Transact(ctx, []libovsdb.Operation{
		{Op: libovsdb.OperationSelect, Table: s.global(), Where: []libovsdb.Condition{}, Columns: []string{"_uuid", "ssl"}},
		{Op: libovsdb.OperationSelect, Table: "Connection", Where: []libovsdb.Condition{libovsdb.NewCondition("target", libovsdb.ConditionEqual, s.Target)}, Columns: []string{"_uuid"}},
		{Op: libovsdb.OperationSelect, Table: "SSL", Where: []libovsdb.Condition{}, Columns: []string{"_uuid", "private_key", "certificate", "ca_cert"}},
	})
	if err != nil {
		return nil, fmt.Errorf("reading the connections of %s: %w", s.Database, err)
	}
	if len(found[0].Rows) != 1 {
		return nil, fmt.Errorf("%s has no row in %s yet", s.Database, s.global())
	}
	global := same(found[0].Rows[0])
	return append(s.connection(global, found[1].Rows, ours), s.ssl(global, found[2].Rows)...), nil
}

// same selects a row; libovsdb sends no empty condition.
func same(row libovsdb.Row) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, row["_uuid"])}
}

// connection adds the connection unless it is there.
func (s Server) connection(global []libovsdb.Condition, have []libovsdb.Row, ours map[string]string) []libovsdb.Operation {
	if len(have) > 0 {
		return nil
	}
	ids, _ := libovsdb.NewOvsMap(ours)
	return []libovsdb.Operation{
		{Op: libovsdb.OperationInsert, Table: "Connection", UUIDName: "connection", Row: libovsdb.Row{"target": s.Target, "inactivity_probe": 0, "external_ids": ids}},
		{Op: libovsdb.OperationMutate, Table: s.global(), Where: global, Mutations: []libovsdb.Mutation{
			*libovsdb.NewMutation("connections", libovsdb.MutateOperationInsert, libovsdb.OvsSet{GoSet: []any{libovsdb.UUID{GoUUID: "connection"}}}),
		}},
	}
}

// ssl sets the files. A database has at most one row.
func (s Server) ssl(global []libovsdb.Condition, have []libovsdb.Row) []libovsdb.Operation {
	want := libovsdb.Row{"private_key": s.PrivateKey, "certificate": s.Certificate, "ca_cert": s.CACert}
	if len(have) == 0 {
		return []libovsdb.Operation{
			{Op: libovsdb.OperationInsert, Table: "SSL", UUIDName: "ssl", Row: want},
			{Op: libovsdb.OperationUpdate, Table: s.global(), Where: global, Row: libovsdb.Row{"ssl": libovsdb.UUID{GoUUID: "ssl"}}},
		}
	}
	for column, value := range want {
		if have[0][column] != value {
			return []libovsdb.Operation{{Op: libovsdb.OperationUpdate, Table: "SSL", Where: same(have[0]), Row: want}}
		}
	}
	return nil
}
