package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"
)

// abandon calls f and waits until it returns, ctx ends or the connection is gone. f may stay behind in a write to a
// dead socket until the kernel gives up.
func abandon[T any](ctx, gone context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		done <- result{v, err}
	}()
	var none T
	select {
	case r := <-done:
		if r.err != nil && errors.Is(r.err, ctx.Err()) {
			r.err = context.Cause(ctx)
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-gone.Done():
		return none, fmt.Errorf("%w: %w", ErrNotConnected, context.Cause(gone))
	}
}

// Transact commits operations as one transaction and returns their results. The error is a *Refused if the server
// did not commit, and ErrNotConnected without a connection or if it was lost during the call. When Transact
// returns, the cache has the change.
func (db *DB) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	db.calls.RLock()
	defer db.calls.RUnlock()
	c := db.current()
	if c == nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	start := time.Now()
	db.transactions.Add(1)
	results, err := abandon(ctx, c.gone, func(ctx context.Context) ([]ovsdb.OperationResult, error) {
		return c.rpc.Transact(ctx, db.options.Model.Name(), ops...)
	})
	if err == nil {
		err = refusal(results, ops)
	} else {
		err = c.lost(ctx, err)
	}
	db.log.WithFields(logrus.Fields{"operations": len(ops), "ms": time.Since(start).Milliseconds()}).Debugf("transaction to %s", db.options.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", db.options.Name, err)
	}
	return results, nil
}

// Sync waits until the cache has all transactions committed before the call. It writes nothing and is not counted
// as a transaction: the server sends due updates before the answer to any transaction, even to a read-only one.
func (db *DB) Sync(ctx context.Context) error {
	db.calls.RLock()
	defer db.calls.RUnlock()
	c := db.current()
	if c == nil {
		return fmt.Errorf("%s: %w", db.options.Name, ErrNotConnected)
	}
	return db.sync(ctx, c)
}

// sync is Sync for one connection.
func (db *DB) sync(ctx context.Context, c *conn) error {
	for table := range db.options.Model.Types() {
		none := ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: "00000000-0000-0000-0000-000000000000"})
		read := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Where: []ovsdb.Condition{none}, Columns: []string{"_uuid"}}
		_, err := abandon(ctx, c.gone, func(ctx context.Context) ([]ovsdb.OperationResult, error) {
			return c.rpc.Transact(ctx, db.options.Model.Name(), read)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", db.options.Name, c.lost(ctx, err))
		}
		break
	}
	return nil
}

// lost converts the error of a lost connection into ErrNotConnected.
func (c *conn) lost(ctx context.Context, err error) error {
	if errors.Is(err, ErrNotConnected) || ctx.Err() != nil {
		return err
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: connection lost", ErrNotConnected)
		}
	}
	return &Refused{Index: -1, Err: err}
}

// refusal returns the first failure in the results of a transaction (RFC 7047 section 4.1.3), or nil. libovsdb's
// Transact does not check them.
func refusal(results []ovsdb.OperationResult, ops []ovsdb.Operation) error {
	errs, err := ovsdb.CheckOperationResults(results, ops)
	if err == nil {
		return nil
	}
	for i, r := range results {
		if r.Error == "" || i >= len(ops) || len(errs) == 0 {
			continue
		}
		return &Refused{Index: i, Operation: ops[i].Op + " " + ops[i].Table, Err: errs[0]}
	}
	return &Refused{Index: -1, Err: err}
}
