package watcher

import (
	"context"
	"errors"
	"sync/atomic"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/watcher/failures"
	"ovn-k8s/lib/watcher/garbage"
	"ovn-k8s/lib/watcher/pace"
	"ovn-k8s/lib/watcher/parts"
)

// northbound applies rows to the Northbound database.
type northbound struct {
	parts.Writer
	db       *ovsdb.DB
	log      *logrus.Entry
	renewing atomic.Bool
}

// newNorthbound returns an Applier. It reads and follows rows by db, and writes them by transact: db itself, or a term.
func newNorthbound(db *ovsdb.DB, transact nbsync.DB, log func(string) *logrus.Entry) *northbound {
	sync := &nbsync.Sync{DB: transact, Log: log("nbsync"), Compare: desired.Compare}
	return &northbound{Writer: parts.Writer{Sync: sync}, db: db, log: log("watcher")}
}

// Apply implements Applier.
func (n *northbound) Apply(ctx context.Context, want map[nb.Unit][]nb.Row) (Work, map[nb.Unit]error) {
	changes, failed := n.Writer.Apply(ctx, want)
	for u, err := range failed {
		failed[u] = classify(err)
	}
	return Work{len(changes), pace.Weight(changes)}, failed
}

// classify marks errors that end without intervention, and those of all units.
func classify(err error) error {
	var disk *libovsdb.IOError
	switch {
	case errors.Is(err, ovsdb.ErrNotConnected), errors.Is(err, nbsync.ErrDraining), errors.Is(err, parts.ErrHeld): // lib/ovsdb reports the first
		return failures.Mark(err, ErrPending)
	case errors.As(err, &disk):
		return failures.Mark(err, ErrOutage)
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
	forget := n.Writer.Follow(changed)
	return func() {
		forget()
		remove()
		unfollow()
	}
}

// Compact implements Applier.
func (n *northbound) Compact() bool {
	if !n.Shrunk() {
		return false
	}
	if n.renewing.CompareAndSwap(false, true) {
		go n.renew()
	}
	return true
}

// renew reads the database into a new cache, without room for deleted rows. After a failure, the next Compact does it.
func (n *northbound) renew() {
	defer n.renewing.Store(false)
	n.log.Info("reading the Northbound database again: most of its rows are gone")
	garbage.ExpectRows()
	if err := n.db.Renew(context.Background()); err != nil { // it has timeouts of its own
		n.log.Warn(err)
	}
}
