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
)

// An Applier gives units the rows that a World wants. One goroutine calls Apply at a time.
//
// Units are independent: a slow one must not hold up others. An Applier that needs more than some milliseconds for a unit
// starts the work, lets it fail with an error that wraps ErrPending, and tells the function of Follow about the unit when the
// work has ended. The next Apply of the unit returns how it ended, or starts again if other rows are wanted by then.
type Applier interface {
	// Apply gives each unit the rows that it wants, none meaning that all its rows go, and returns the units that failed. A
	// unit with the rows that it wants costs nothing.
	Apply(ctx context.Context, want map[nb.Unit][]nb.Row) (Work, map[nb.Unit]error)
	// Plan returns the changes that Apply would make, a line each, and the units that would fail.
	Plan(want map[nb.Unit][]nb.Row) ([]string, map[nb.Unit]error, error)
	// Owners lists the units with rows. A unit that a World owns and does not list any more loses them.
	Owners() ([]nb.Unit, error)
	// Follow calls changed with each unit to be applied again, because somebody else changed its rows or because it was
	// pending, until stop. changed does not block.
	Follow(changed func(nb.Unit)) (stop func())
}

// Work is how much an Applier changed.
type Work struct {
	Rows   int
	Weight float64 // what the rows count for in the pace of transactions, see pacer
}

var (
	// ErrPending is why a unit failed that will be done without anybody's help. It is not reported.
	ErrPending = errors.New("pending")
	// ErrOutage is why all units fail for the time being. One of them is tried often.
	ErrOutage = errors.New("outage")
)

// A marked error is also another one.
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

// classify marks errors that end without anybody's help, and those of all units.
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
