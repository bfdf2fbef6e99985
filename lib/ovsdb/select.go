package ovsdb

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// A Query reads rows of one table.
type Query struct {
	Table   string
	Columns []string
	// Where selects the rows that fulfil all conditions.
	Where []ovsdb.Condition
}

// Rows are rows of a database as they were at one moment. As a database of package
// nbsync they hold nothing else; Transact changes the database, but not them.
type Rows struct {
	db     *DB
	client rowsClient
}

// rowsClient is a client with another cache.
type rowsClient struct {
	client.Client
	cache *cache.TableCache
}

// Cache returns the rows.
func (c rowsClient) Cache() *cache.TableCache { return c.cache }

// Client returns a client whose cache holds the rows.
func (r *Rows) Client() client.Client { return r.client }

// Transact is DB.Transact.
func (r *Rows) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	return r.db.Transact(ctx, ops)
}

// Select reads rows in one transaction. Unlike a followed table, they cost the server
// nothing once they are sent.
func (db *DB) Select(ctx context.Context, queries ...Query) (*Rows, error) {
	c := db.Client()
	if c == nil || c.Cache() == nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	all, err := cache.NewTableCache(c.Cache().DatabaseModel(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", db.options.Name, err)
	}
	r := &Rows{db: db, client: rowsClient{c, all}}
	return r, r.Add(ctx, queries...)
}

// Add reads more rows, which are as they are now.
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
			uuid, ok := row["_uuid"].(ovsdb.UUID)
			if ok && r.client.cache.Table(q.Table).Row(uuid.GoUUID) == nil {
				updates[uuid.GoUUID] = &ovsdb.RowUpdate{New: &row}
			}
		}
		if err := r.client.cache.Populate(ovsdb.TableUpdates{q.Table: updates}); err != nil {
			return fmt.Errorf("reading rows of %s: %w", q.Table, err)
		}
	}
	return nil
}
