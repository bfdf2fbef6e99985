// Package nbsync makes rows of the Northbound database equal to the rows desired by their units: it compares in
// memory and writes one transaction.
//
// Rows carry their unit in external_ids (names.Owner). Unowned rows are never touched, and neither are columns and
// keys missing in the tables of lib/nbsync/owned.
package nbsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync/owned"
)

// A DB is a connection to the Northbound database with Columns in its cache.
type DB interface {
	// Cache is the copy of the database, nil without a connection.
	Cache() *cache.TableCache
	// Transact commits all operations, or none and returns an error. The error wraps an ovsdb.OperationError if the
	// database refused them.
	Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error)
}

// ErrConflict is returned when another client changed values checked by a Guard.
var ErrConflict = errors.New("the database was changed by somebody else meanwhile")

// ErrDraining means that Apply emptied a row of the unit; an Apply after drainTime deletes it, so that northd and
// ovn-controller see both steps. If a host's row is deleted together with its variables, ovn-controller 23.03 keeps
// these and aborts when the row comes back (template_vars_update in controller/ovn-controller.c).
var ErrDraining = errors.New("emptied, to be deleted")

const drainTime = time.Second

// A Sync applies desired rows of units to one database. Apply and ApplyAll are called by one goroutine at a time;
// the other methods by any.
type Sync struct {
	DB  DB
	Log *logrus.Entry // nil is silent
	// Compare orders units by their dependencies, if Apply takes several transactions; nil is by name.
	Compare func(a, b nb.Unit) int

	mu       sync.Mutex // guards the following fields, but not during a transaction
	index    *rowIndex
	draining map[string]time.Time // times when rows were emptied, by UUID; older ones are forgotten

	changed changedRows
}

// Plan returns the changes Apply would make now, and changes nothing.
func (s *Sync) Plan(want map[nb.Unit][]nb.Row) (*Plan, error) {
	c, err := s.cache()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.draining, func(_ string, since time.Time) bool { return time.Since(since) >= drainTime })
	return newPlan(c, s.refreshed(c), want, slices.Collect(maps.Keys(s.draining)))
}

func (s *Sync) cache() (*cache.TableCache, error) {
	if c := s.DB.Cache(); c != nil {
		return c, nil
	}
	return nil, client.ErrNotConnected
}

// Shrunk reports whether most rows of the connection's cache were deleted. Then most of its memory is unused, until a
// connection with a new cache.
func (s *Sync) Shrunk() bool {
	c, err := s.cache()
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshed(c).shrunk
}

// Owners lists the units with rows. It reads every row.
func (s *Sync) Owners() ([]nb.Unit, error) {
	c, err := s.cache()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.refreshed(c)
	m.refresh(c)
	return slices.Sorted(maps.Keys(m.owned)), nil
}

// Apply gives each unit its desired rows; without desired rows, the unit's rows are deleted. It returns its
// changes, and the reason for each failed unit: one bad unit does not hold up the others.
//
// It is one transaction, or several if it would be too large: see stages.
func (s *Sync) Apply(ctx context.Context, want map[nb.Unit][]nb.Row) (done []Change, failed map[nb.Unit]error) {
	failed = map[nb.Unit]error{}
	for _, st := range s.stages(want) {
		changes, bad := s.apply(ctx, want, st)
		done = append(done, changes...)
		maps.Copy(failed, bad)
	}
	return done, failed
}

// apply commits one transaction, or several smaller ones if the database refuses it.
func (s *Sync) apply(ctx context.Context, want map[nb.Unit][]nb.Row, st stage) ([]Change, map[nb.Unit]error) {
	plan, err := st.plan, error(nil)
	if plan == nil {
		plan, err = s.Plan(part(want, st.units))
	}
	if err == nil {
		err = s.commit(ctx, plan)
	}
	if err == nil {
		s.drain(plan)
		return plan.Changes, plan.Failed
	}
	if len(st.units) == 1 || !refused(err) {
		return nil, plan.fail(err, st.units)
	}
	failed := map[nb.Unit]error{}
	var done []Change
	for _, half := range [][]nb.Unit{st.units[:len(st.units)/2], st.units[len(st.units)/2:]} {
		changes, bad := s.apply(ctx, want, stage{units: half})
		done = append(done, changes...)
		maps.Copy(failed, bad)
	}
	return done, failed
}

// drain records the rows emptied by a plan, and returns ErrDraining for their units.
func (s *Sync) drain(p *Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining == nil {
		s.draining = map[string]time.Time{}
	}
	for _, uuid := range p.emptied {
		s.draining[uuid] = time.Now()
	}
	for _, u := range p.drainingUnits {
		p.Failed[u] = ErrDraining
	}
}

// refused reports whether the database refused a transaction and a smaller one may succeed: not if its disk is
// full.
func refused(err error) bool {
	var no ovsdb.OperationError
	var disk *ovsdb.IOError
	return errors.As(err, &no) && !errors.As(err, &disk)
}

func (s *Sync) commit(ctx context.Context, p *Plan) error {
	if len(p.ops) == 0 {
		return nil
	}
	start := time.Now()
	_, err := s.DB.Transact(ctx, p.ops)
	if s.Log == nil {
		return err
	}
	s.Log.WithFields(logrus.Fields{"units": len(p.units), "operations": len(p.ops), "ms": time.Since(start).Milliseconds()}).Debug("committed")
	if err == nil {
		tell(s.Log, p.Changes, func(table string) string { return p.have.tables[table].Kind })
	}
	return err
}

// ApplyAll gives all units their desired rows in one transaction, or changes nothing and returns an error. It
// returns ErrConflict if a guard fails; then the caller computes want again.
func (s *Sync) ApplyAll(ctx context.Context, want map[nb.Unit][]nb.Row, guards ...Guard) ([]Change, error) {
	return s.ApplyWith(ctx, want, Keys{}, guards...)
}

// ApplyWith is ApplyAll, and replaces keys in the same transaction.
func (s *Sync) ApplyWith(ctx context.Context, want map[nb.Unit][]nb.Row, keys Keys, guards ...Guard) ([]Change, error) {
	plan, err := s.Plan(want)
	if err != nil {
		return nil, err
	}
	for _, u := range slices.Sorted(maps.Keys(plan.Failed)) {
		err = errors.Join(err, fmt.Errorf("%s: %w", u, plan.Failed[u]))
	}
	if err != nil {
		return nil, err
	}
	plan.ops = append(plan.ops, keys.ops()...)
	if len(plan.ops) == 0 {
		return nil, nil
	}
	if err := plan.guard(guards); err != nil {
		return nil, err
	}
	if err := s.commit(ctx, plan); err != nil {
		var timedOut *ovsdb.TimedOut // the error of a wait operation
		if errors.As(err, &timedOut) {
			return nil, ErrConflict
		}
		return nil, err
	}
	return plan.Changes, nil
}

// Handler returns a handler of cache events. It calls changed with the unit of each of our rows after a change or
// deletion, or after its removal from a weak or shared reference of another row of ours. Added rows are reported only in
// tables with reportAdded: the commands make such rows without all knowledge of the watcher, such as the state of
// gateways. changed must not block.
func (s *Sync) Handler(changed func(nb.Unit)) cache.EventHandler {
	tables := owned.Tables()
	gone := func(t *owned.Table, before, after model.Model) {
		for _, columns := range []map[string]string{t.Weak, t.Shared} {
			for column, of := range columns {
				lost, _ := changes(owned.Refs(before, column), owned.Refs(after, column))
				for _, uuid := range lost {
					if u := s.owner(of, uuid); u != "" {
						changed(u)
					}
				}
			}
		}
	}
	return &cache.EventHandlerFuncs{
		AddFunc: func(name string, m model.Model) {
			if t := tables[name]; t != nil && t.ReportAdded {
				if u, _ := owned.OwnerOf(m); u != "" {
					changed(u)
				}
			}
		},
		UpdateFunc: func(name string, before, after model.Model) {
			t := tables[name]
			u, _ := owned.OwnerOf(before)
			if t == nil || u == "" {
				return
			}
			if t.Differ(before, after) {
				changed(u)
			}
			gone(t, before, after)
		},
		DeleteFunc: func(name string, m model.Model) {
			t := tables[name]
			if u, _ := owned.OwnerOf(m); t != nil && u != "" {
				changed(u)
				gone(t, m, nil)
			}
		},
	}
}

// owner is the unit of a row, or "" for a missing or unowned row.
func (s *Sync) owner(table, uuid string) nb.Unit {
	c, err := s.cache()
	if err != nil {
		return "" // everything is dirty then
	}
	row := c.Table(table).Row(uuid)
	if row == nil {
		return ""
	}
	u, _ := owned.OwnerOf(row)
	return u
}
