// Package dbserver configures the server of an OVN database: the row Connection by which it listens, and the row SSL with its
// files (ovn-nb(5), ovn-sb(5)).
package dbserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// kind is "NB" or "SB".
func (s Server) kind() string {
	return map[string]string{Northbound: "NB", Southbound: "SB"}[s.Database]
}

// global is the table with one row that has the connections.
func (s Server) global() string { return s.kind() + "_Global" }

// Configure makes the server listen at the target with the files, and reports whether it changed anything. ours are external_ids
// for a new connection: former ones with them go, and others stay as they are. One of them at the same port is an error.
func (s Server) Configure(ctx context.Context, ours map[string]string, log *logrus.Entry) (bool, error) {
	changed, _, err := s.write(ctx, ours, log, func(have rows) []libovsdb.Operation { return s.plan(have, ours) })
	return changed, err
}

// Restore adds missing rows, as Configure does, and reports whether there were any. Files of another program stay: it
// returns them.
func (s Server) Restore(ctx context.Context, ours map[string]string, log *logrus.Entry) (changed bool, foreign ovsdb.Files, err error) {
	changed, files, err := s.write(ctx, ours, log, func(have rows) []libovsdb.Operation {
		if len(have.ssl) > 0 {
			return s.connection(have, ours)
		}
		return s.plan(have, ours)
	})
	if files == s.Files {
		files = ovsdb.Files{}
	}
	return changed, files, err
}

// Differs reports whether Configure would change anything.
func (s Server) Differs(ctx context.Context, ours map[string]string) (bool, error) {
	db, err := s.open(ctx, nil)
	if err != nil {
		return false, err
	}
	defer db.Close()
	have, err := s.read(ctx, db, ours)
	return err == nil && len(s.plan(have, ours)) > 0, err
}

// write executes the operations that plan returns for the present rows. files are those of the row SSL before, if there was one.
func (s Server) write(ctx context.Context, ours map[string]string, log *logrus.Entry, plan func(rows) []libovsdb.Operation) (changed bool, files ovsdb.Files, err error) {
	db, err := s.open(ctx, log)
	if err != nil {
		return false, files, err
	}
	defer db.Close()
	have, err := s.read(ctx, db, ours)
	if err != nil {
		return false, files, err
	}
	ops := plan(have)
	if len(ops) == 0 {
		return false, have.files(), nil
	}
	if _, err := db.Transact(ctx, ops); err != nil {
		return false, files, fmt.Errorf("configuring the server of %s: %w", s.Database, err)
	}
	return true, have.files(), nil
}

func (s Server) open(ctx context.Context, log *logrus.Entry) (*ovsdb.DB, error) {
	m, err := model.NewClientDBModel(s.Database, nil)
	if err != nil {
		return nil, err
	}
	return ovsdb.Open(ctx, ovsdb.Options{Name: s.Database, Remotes: []string{"unix:" + s.Socket}, Model: m, Unfollowed: true, AnyMember: true, Log: log})
}

// rows are those of a database about its server.
type rows struct {
	global      []libovsdb.Condition // selects the row with the connections
	connections []libovsdb.Row       // with the target, or in its place
	formers     []libovsdb.Row       // ours with other targets
	ssl         []libovsdb.Row       // at most one
}

// files are those of the row SSL, empty without one.
func (r rows) files() (f ovsdb.Files) {
	if len(r.ssl) > 0 {
		f.PrivateKey, _ = r.ssl[0]["private_key"].(string)
		f.Certificate, _ = r.ssl[0]["certificate"].(string)
		f.CACert, _ = r.ssl[0]["ca_cert"].(string)
	}
	return f
}

func (s Server) read(ctx context.Context, db *ovsdb.DB, ours map[string]string) (have rows, err error) {
	ids, err := libovsdb.NewOvsMap(ours)
	if err != nil {
		return have, err
	}
	found, err := db.Transact(ctx, []libovsdb.Operation{
		{Op: libovsdb.OperationSelect, Table: s.global(), Where: []libovsdb.Condition{}, Columns: []string{"_uuid", "ssl"}},
		{Op: libovsdb.OperationSelect, Table: "Connection", Where: []libovsdb.Condition{libovsdb.NewCondition("target", libovsdb.ConditionEqual, s.Target)}, Columns: []string{"_uuid"}},
		{Op: libovsdb.OperationSelect, Table: "SSL", Where: []libovsdb.Condition{}, Columns: []string{"_uuid", "private_key", "certificate", "ca_cert"}},
		{Op: libovsdb.OperationSelect, Table: "Connection", Where: []libovsdb.Condition{
			libovsdb.NewCondition("target", libovsdb.ConditionNotEqual, s.Target), libovsdb.NewCondition("external_ids", libovsdb.ConditionIncludes, ids),
		}, Columns: []string{"_uuid"}},
		{Op: libovsdb.OperationSelect, Table: "Connection", Where: []libovsdb.Condition{
			libovsdb.NewCondition("target", libovsdb.ConditionNotEqual, s.Target), libovsdb.NewCondition("external_ids", libovsdb.ConditionExcludes, ids),
		}, Columns: []string{"_uuid", "target"}},
	})
	if err != nil {
		return have, fmt.Errorf("reading the connections of %s: %w", s.Database, err)
	}
	if len(found[0].Rows) != 1 {
		return have, fmt.Errorf("%s has no row in %s yet", s.Database, s.global())
	}
	have = rows{same(found[0].Rows[0]), found[1].Rows, found[3].Rows, found[2].Rows}
	for _, row := range found[4].Rows {
		other, _ := row["target"].(string)
		switch serves, conflicts := compare(other, s.Target); {
		case serves:
			have.connections = append(have.connections, row)
		case conflicts:
			kind := strings.ToLower(s.kind())
			return have, fmt.Errorf("cannot listen at %s: connection %s of %s has the port: remove all connections with \"ovn-%sctl del-connection\", or give --%s-address another port",
				s.Target, other, s.Database, kind, kind)
		}
	}
	return have, nil
}

// plan returns the operations of Configure, none if nothing differs.
func (s Server) plan(have rows, ours map[string]string) []libovsdb.Operation {
	return slices.Concat(s.dropped(have), s.connection(have, ours), s.ssl(have))
}

// same selects a row; libovsdb sends no empty condition.
func same(row libovsdb.Row) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, row["_uuid"])}
}

// dropped removes former connections: the server cannot listen at one port twice.
func (s Server) dropped(have rows) (all []libovsdb.Operation) {
	for _, former := range have.formers {
		all = append(all, libovsdb.Operation{Op: libovsdb.OperationMutate, Table: s.global(), Where: have.global, Mutations: []libovsdb.Mutation{
			*libovsdb.NewMutation("connections", libovsdb.MutateOperationDelete, libovsdb.OvsSet{GoSet: []any{former["_uuid"]}}),
		}})
	}
	return all
}

// connection adds the connection unless it is there.
func (s Server) connection(have rows, ours map[string]string) []libovsdb.Operation {
	if len(have.connections) > 0 {
		return nil
	}
	ids, _ := libovsdb.NewOvsMap(ours)
	return []libovsdb.Operation{
		{Op: libovsdb.OperationInsert, Table: "Connection", UUIDName: "connection", Row: libovsdb.Row{"target": s.Target, "inactivity_probe": 0, "external_ids": ids}},
		{Op: libovsdb.OperationMutate, Table: s.global(), Where: have.global, Mutations: []libovsdb.Mutation{
			*libovsdb.NewMutation("connections", libovsdb.MutateOperationInsert, libovsdb.OvsSet{GoSet: []any{libovsdb.UUID{GoUUID: "connection"}}}),
		}},
	}
}

// ssl sets the files.
func (s Server) ssl(have rows) []libovsdb.Operation {
	want := libovsdb.Row{"private_key": s.PrivateKey, "certificate": s.Certificate, "ca_cert": s.CACert}
	if len(have.ssl) == 0 {
		return []libovsdb.Operation{
			{Op: libovsdb.OperationInsert, Table: "SSL", UUIDName: "ssl", Row: want},
			{Op: libovsdb.OperationUpdate, Table: s.global(), Where: have.global, Row: libovsdb.Row{"ssl": libovsdb.UUID{GoUUID: "ssl"}}},
		}
	}
	if have.files() == s.Files {
		return nil
	}
	return []libovsdb.Operation{{Op: libovsdb.OperationUpdate, Table: "SSL", Where: same(have.ssl[0]), Row: want}}
}
