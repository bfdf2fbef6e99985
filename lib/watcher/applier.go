package watcher

import (
	"context"
	"errors"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/watcher/failures"
)

// An Applier writes the desired rows of units. One goroutine calls Apply at a time.
//
// Units are independent: a slow one must not hold up others. If a unit needs more than some milliseconds, an Applier
// starts the work and returns an error for it that wraps ErrPending. At the end of the work it calls the function of
// Follow with the unit. The next Apply of the unit returns the result, or starts again if other rows are wanted by
// then.
type Applier interface {
	// Apply writes the desired rows of each unit, and returns the failed units. A unit without desired rows loses
	// all. A unit without differences costs nothing.
	Apply(ctx context.Context, want map[nb.Unit][]nb.Row) (Work, map[nb.Unit]error)
	// Plan returns the changes of Apply, a line each, and the units that would fail.
	Plan(want map[nb.Unit][]nb.Row) ([]string, map[nb.Unit]error, error)
	// Owners lists the units with rows. Obsolete units owned by a World lose their rows.
	Owners() ([]nb.Unit, error)
	// Follow calls changed, until stop, with each unit to be applied again: another client changed its rows, or it
	// was pending. changed does not block.
	Follow(changed func(nb.Unit)) (stop func())
}

// Work is the size of the changes by an Applier.
type Work struct {
	Rows   int
	Weight float64 // in rows of pods, for the pace of transactions, see pacer
}

// The errors of an Applier without a report, see package failures.
var (
	ErrPending = failures.ErrPending
	ErrOutage  = failures.ErrOutage
)

// A marked error has a second identity for errors.Is.
type marked struct {
	error
	as error
}

// Unwrap returns the error itself.
func (m marked) Unwrap() error { return m.error }

// Is implements errors.Is.
func (m marked) Is(target error) bool { return target == m.as }

// northbound applies rows to the Northbound database.
type northbound struct {
	nbsync.Sync
	db *ovsdb.DB
}

func newNorthbound(db *ovsdb.DB, log *logrus.Entry) *northbound {
	return &northbound{nbsync.Sync{DB: db, Log: log, Compare: desired.Compare}, db}
}

// Apply implements Applier.
func (n *northbound) Apply(ctx context.Context, want map[nb.Unit][]nb.Row) (Work, map[nb.Unit]error) {
	changes, failed := n.Sync.Apply(ctx, want)
	for u, err := range failed {
		failed[u] = classify(err)
	}
	return Work{len(changes), weight(changes)}, failed
}

// classify marks errors that end without intervention, and those of all units.
func classify(err error) error {
	var disk *libovsdb.IOError
	switch {
	case errors.Is(err, ovsdb.ErrNotConnected), errors.Is(err, nbsync.ErrDrained): // lib/ovsdb reports the former
		return marked{err, ErrPending}
	case errors.As(err, &disk):
		return marked{err, ErrOutage}
	}
	return err
}

// Plan implements Applier.
func (n *northbound) Plan(want map[nb.Unit][]nb.Row) (lines []string, failed map[nb.Unit]error, err error) {
	plan, err := n.Sync.Plan(want)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range plan.Changes {
		lines = append(lines, c.String())
	}
	return lines, plan.Failed, nil
}

// Follow implements Applier.
func (n *northbound) Follow(changed func(nb.Unit)) (stop func()) {
	unfollow := n.Sync.Follow(n.db)
	remove := n.db.Handle(n.Handler(changed))
	return func() {
		remove()
		unfollow()
	}
}
