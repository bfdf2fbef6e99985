package field

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"golang.org/x/sync/errgroup"

	libdb "ovn-k8s/lib/ovsdb"
)

// rowsAtOnce is the number of rows, with their children, inserted by the yardstick in one transaction.
const rowsAtOnce = 50

// Parallel calls do with 0 to n-1, many at once.
func Parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range creators {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// Timed returns the duration of do, in seconds.
func Timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return time.Since(began).Seconds(), err
}

// Pause waits.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A Replica is a copy of the Northbound database with a signal for changes.
type Replica struct {
	*libdb.DB
	changed chan struct{} // holds one token if there may be changes
}

// Follow returns a replica. The caller must close it.
func (f *Field) Follow(ctx context.Context) (*Replica, error) {
	db, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	r := &Replica{db, make(chan struct{}, 1)}
	changed := func() {
		select {
		case r.changed <- struct{}{}:
		default: // a token is waiting
		}
	}
	db.Handle(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { changed() },
		UpdateFunc: func(string, model.Model, model.Model) { changed() },
		DeleteFunc: func(string, model.Model) { changed() },
	})
	return r, nil
}

// Await waits until done is true for the replica.
func (r *Replica) Await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-r.changed:
		}
	}
	return nil
}

// Count is the number of wanted rows of a table.
func Count[M any](db *Replica, table string, wanted func(M) bool) int {
	n := 0
	for _, m := range db.Client().Cache().Table(table).RowsShallow() {
		if wanted(m.(M)) {
			n++
		}
	}
	return n
}

// RowsOf are copies of a table's rows.
func RowsOf[M model.CloneableModel](db *Replica, table string, keep func(M) bool) []M {
	var rows []M
	for _, m := range db.Client().Cache().Table(table).RowsShallow() {
		if row := m.(M); keep(row) {
			rows = append(rows, row.CloneModel().(M))
		}
	}
	return rows
}

// Insert inserts rows as a plain program would: operations returns the operations of one row, and rowsAtOnce rows
// make a transaction.
func Insert[M any](ctx context.Context, db *Replica, rows []M, operations func(i int, row M) ([]ovsdb.Operation, error)) error {
	i := 0
	for chunk := range slices.Chunk(rows, rowsAtOnce) {
		var ops []ovsdb.Operation
		for _, row := range chunk {
			more, err := operations(i, row)
			if err != nil {
				return err
			}
			ops, i = append(ops, more...), i+1
		}
		if _, err := db.Transact(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}
