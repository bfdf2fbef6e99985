// Package store keeps the topology of the cluster and its rows in the Northbound database: it reads them, changes them in
// one transaction, and shows the changes before.
package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/cache"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/settings"
)

// A Store is a connection to the Northbound database.
type Store struct {
	config config.Config
	report *progress.Reporter
	dryRun bool
	db     *ovsdb.DB
	temp   string // a temporary directory of a dry run
	// only is the node to read; empty means all rows.
	only string
	// read is the state read a moment ago, for the first change.
	read      *state
	conflicts int // failed changes of only
}

// A state is the topology, with its rows if only those of one node were read.
type state struct {
	membership.State
	few *ovsdb.Rows // or nil
}

// New returns a Store that is not connected. A dry run keeps no CA certificate fetched for it. With the name of a node,
// the Store reads the rows of that node instead of all.
func New(c config.Config, report *progress.Reporter, dryRun bool, node string) *Store {
	return &Store{config: c, report: report, dryRun: dryRun, only: node}
}

// Open connects to the Northbound database.
func (s *Store) Open(ctx context.Context) error {
	if len(s.config.NB) == 0 {
		return config.ErrNoNB
	}
	return s.report.Stage(ctx, "connecting to the Northbound database at "+strings.Join(s.config.NB, ", "), s.connect)
}

// connect connects to the Northbound database once. It closes a former connection.
func (s *Store) connect(ctx context.Context) error {
	model, err := ovsdb.NBModel()
	if err != nil {
		return err
	}
	tls, err := s.tls(ctx)
	if err != nil {
		return err
	}
	nb, err := ovsdb.Open(ctx, ovsdb.Options{
		Name: "the Northbound database", Remotes: s.config.NB, TLS: tls, Model: model, Needs: "OVN 23.03",
		Unfollowed: s.only != "",
	})
	if err != nil {
		return err
	}
	if s.db != nil {
		s.db.Close()
	}
	s.db, s.read = nb, nil
	return nil
}

// tls reads the certificates. A dry run does not keep a CA certificate fetched for it.
func (s *Store) tls(ctx context.Context) (*tls.Config, error) {
	files := ovsdb.Files{PrivateKey: s.config.NBPrivateKey, Certificate: s.config.NBCertificate, CACert: s.config.NBCACert}
	if _, err := os.Stat(files.CACert); err != nil && s.dryRun {
		if s.temp, err = os.MkdirTemp("", progress.Program); err != nil {
			return nil, err
		}
		files.CACert = filepath.Join(s.temp, "ca.pem") // read for each connection
	}
	return ovsdb.TLSConfig(ctx, files, s.config.NB, s.report.Errors())
}

// Close ends the connection.
func (s *Store) Close() {
	if s.temp != "" {
		_ = os.RemoveAll(s.temp) // one certificate in the directory for temporary files
	}
	if s.db != nil {
		s.db.Close()
	}
}

// Topology reads the recorded topology. The next change uses this reading, if it is the state of one node.
func (s *Store) Topology(ctx context.Context) (before topology.Cluster, err error) {
	err = s.withDB(ctx, "reading the Northbound database", func(ctx context.Context) error {
		w, err := s.readState(ctx)
		before = w.Topology()
		if w.few != nil {
			s.read = &w
		}
		return err
	})
	return before, err
}

// Forget makes the next change read the database again.
func (s *Store) Forget() { s.read = nil }

// readState reads the topology from the copy of the database, or with s.only the rows of that node.
func (s *Store) readState(ctx context.Context) (state, error) {
	if w := s.read; w != nil {
		s.read = nil
		return *w, nil
	}
	if s.only != "" {
		return s.readNode(ctx)
	}
	rows := s.db.Cache()
	if rows == nil {
		return state{}, fmt.Errorf("reading the Northbound database: %w", ovsdb.ErrNotConnected)
	}
	return newState(rows)
}

// newState is Read.
func newState(c *cache.TableCache) (state, error) {
	found, err := Read(c)
	return state{State: found}, err
}

// Read finds the topology in a copy of the database.
func Read(c *cache.TableCache) (membership.State, error) {
	return membership.NewState(list[nbdb.LogicalRouter](c, nbdb.LogicalRouterTable), list[nbdb.LogicalSwitch](c, nbdb.LogicalSwitchTable),
		list[nbdb.LogicalSwitchPort](c, nbdb.LogicalSwitchPortTable), list[nbdb.LogicalRouterPort](c, nbdb.LogicalRouterPortTable))
}

// list returns the rows of a table. Maps, slices and pointers in them are shared with c.
func list[T any](c *cache.TableCache, table string) []T {
	var out []T
	for _, m := range c.Table(table).RowsShallow() {
		out = append(out, *any(m).(*T))
	}
	return out
}

// Intervals between attempts while others change the topology too.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// maxRefused is how often a refused transaction is repeated. The database refuses rows with the same name from two
// clients at once.
const maxRefused = 5

// Change gives the cluster and a unit their rows in one transaction. After a conflict with another client,
// it computes the change again from the new state.
func (s *Store) Change(ctx context.Context, unit nb.Unit, change membership.Change) (changes []nbsync.Change, err error) {
	err = s.withDB(ctx, "changing the Northbound database", func(ctx context.Context) error {
		b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
		refusals := 0
		return backoff.Retry(func() (err error) {
			changes, err = s.tryChange(ctx, unit, change)
			var refused *ovsdb.Refused
			if errors.As(err, &refused) {
				refusals++
			}
			if err == nil || errors.Is(err, nbsync.ErrConflict) || refused != nil && refusals < maxRefused {
				return err
			}
			return backoff.Permanent(err)
		}, backoff.WithContext(b, ctx))
	})
	return changes, err
}

// withDB is Stage for work on the Northbound database. s.db does not connect again by itself.
func (s *Store) withDB(ctx context.Context, what string, work func(context.Context) error) error {
	lost := false
	return s.report.Stage(ctx, what, func(ctx context.Context) error {
		if lost {
			if err := s.connect(ctx); err != nil {
				return err
			}
		}
		err := work(ctx)
		if errors.Is(err, errReadAll) {
			s.only, lost = "", true
			if err := s.connect(ctx); err != nil {
				return err
			}
			err = work(ctx)
		}
		lost = ctx.Err() != nil || errors.Is(err, ovsdb.ErrNotConnected)
		if err != nil && !lost {
			return settings.Wrong(err)
		}
		return err
	})
}

// tryChange makes a change once. It fails if the router's record changed since the change was computed.
func (s *Store) tryChange(ctx context.Context, unit nb.Unit, change membership.Change) ([]nbsync.Change, error) {
	w, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}
	after, err := change(w.State)
	if err != nil {
		return nil, err
	}
	if s.only != "" {
		return s.changeNode(ctx, w, after)
	}
	return Commit(ctx, &nbsync.Sync{DB: s.db}, w.Router, membership.Rows(w.Topology(), after, unit))
}

// Commit gives units their rows in one transaction, if the record of the topology is still that of router; nil: if there
// is no cluster router. Else it returns nbsync.ErrConflict.
func Commit(ctx context.Context, to *nbsync.Sync, router *nbdb.LogicalRouter, rows map[nb.Unit][]nb.Row) ([]nbsync.Change, error) {
	guard := nbsync.Absent(nbdb.LogicalRouterTable, names.ClusterRouter)
	if router != nil {
		guard = nbsync.Unchanged(nbdb.LogicalRouterTable, router, "external_ids")
	}
	return to.ApplyAll(ctx, rows, guard)
}

// Plan returns the changes of Change.
func (s *Store) Plan(ctx context.Context, unit nb.Unit, change membership.Change) ([]nbsync.Change, error) {
	w, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}
	after, err := change(w.State)
	if err != nil {
		return nil, err
	}
	plan, err := (&nbsync.Sync{DB: s.db}).Plan(membership.Rows(w.Topology(), after, unit))
	if err != nil {
		return nil, err
	}
	for _, u := range slices.Sorted(maps.Keys(plan.Failed)) {
		err = errors.Join(err, fmt.Errorf("%s: %w", u, plan.Failed[u]))
	}
	return plan.Changes, err
}

// Preview prints the changes of Change.
func (s *Store) Preview(ctx context.Context, unit nb.Unit, change membership.Change) error {
	changes, err := s.Plan(ctx, unit, change)
	if err != nil {
		return err
	}
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = c.String()
	}
	s.report.Section("Northbound database", lines)
	return nil
}
