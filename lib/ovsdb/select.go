package ovsdb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// A Query reads rows of one table.
type Query struct {
	Table   string
	Columns []string
	// Where selects the rows with all conditions.
	Where []ovsdb.Condition
	// Known are columns known from Where, so the server need not send them: elements of sets and maps.
	Known ovsdb.Row
}

// Rows are rows of a database at one moment. As a database of package nbsync they hold only the rows read; Transact
// changes the database, but not them.
type Rows struct {
	db    *DB
	cache *cache.TableCache
	rows  map[string]map[string]ovsdb.Row // by table and UUID
}

// Cache returns the rows.
func (r *Rows) Cache() *cache.TableCache { return r.cache }

// Transact is DB.Transact.
func (r *Rows) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	return r.db.Transact(ctx, ops)
}

// Select reads rows in one transaction. Unlike followed tables, they cost the server nothing afterwards.
func (db *DB) Select(ctx context.Context, queries ...Query) (*Rows, error) {
	rows := db.Cache()
	if rows == nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	all, err := cache.NewTableCache(rows.DatabaseModel(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", db.options.Name, err)
	}
	r := &Rows{db: db, cache: all, rows: map[string]map[string]ovsdb.Row{}}
	return r, r.Add(ctx, queries...)
}

// Add reads the present state of more rows, or of more columns of the same rows.
func (r *Rows) Add(ctx context.Context, queries ...Query) error {
	ops := make([]ovsdb.Operation, len(queries))
	for i, q := range queries {
		ops[i] = ovsdb.Operation{Op: ovsdb.OperationSelect, Table: q.Table, Where: q.Where, Columns: append([]string{"_uuid"}, q.Columns...)}
	}
	results, err := r.db.Transact(ctx, ops)
	if err != nil {
		return fmt.Errorf("reading rows: %w", err)
	}
	for i, q := range queries {
		updates := ovsdb.TableUpdate{}
		for _, row := range results[i].Rows {
			if uuid, ok := row["_uuid"].(ovsdb.UUID); ok {
				updates[uuid.GoUUID] = r.merge(q, uuid.GoUUID, row)
			}
		}
		if err := r.cache.Populate(ovsdb.TableUpdates{q.Table: updates}); err != nil {
			return fmt.Errorf("reading rows of %s: %w", q.Table, err)
		}
	}
	return nil
}

// merge adds the columns of a row to those found by other queries.
func (r *Rows) merge(q Query, uuid string, row ovsdb.Row) *ovsdb.RowUpdate {
	if r.rows[q.Table] == nil {
		r.rows[q.Table] = map[string]ovsdb.Row{}
	}
	update := &ovsdb.RowUpdate{}
	all := ovsdb.Row{}
	if old, ok := r.rows[q.Table][uuid]; ok {
		update.Old = &old
		maps.Copy(all, old)
	}
	maps.Copy(all, row)
	for column, known := range q.Known {
		all[column] = union(all[column], known)
	}
	r.rows[q.Table][uuid] = all
	update.New = &all
	return update
}

// union returns the elements of two sets, or of two maps. have may be nil.
func union(have, more any) any {
	switch more := more.(type) {
	case ovsdb.OvsSet:
		if have, ok := have.(ovsdb.OvsSet); ok {
			return ovsdb.OvsSet{GoSet: slices.Concat(have.GoSet, slices.DeleteFunc(slices.Clone(more.GoSet), func(v any) bool { return slices.Contains(have.GoSet, v) }))}
		}
	case ovsdb.OvsMap:
		if have, ok := have.(ovsdb.OvsMap); ok {
			both := maps.Clone(more.GoMap)
			maps.Copy(both, have.GoMap)
			return ovsdb.OvsMap{GoMap: both}
		}
	}
	return more
}
