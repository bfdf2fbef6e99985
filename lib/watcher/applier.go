package watcher

import (
	"context"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb/southbound"
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
	// SetSouth sets the connection to the Southbound database, nil if there is none.
	SetSouth(*southbound.DB)
	// Compact releases the memory of deleted rows. It returns at once, and reports whether much is released: then all
	// rows are read again.
	Compact() bool
}

// Work is the size of the changes by an Applier.
type Work struct {
	Rows   int
	Weight float64 // in rows of pods, for the pace of transactions, see package pace
}

// The errors of an Applier without a report, see package failures.
var (
	ErrPending = failures.ErrPending
	ErrOutage  = failures.ErrOutage
)
