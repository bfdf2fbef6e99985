// Package vswitch works on the local Open vSwitch through its database (ovs-vswitchd.conf.db(5)): bridges, ports
// and their limits, each change as one transaction. It reads and waits on a followed copy, so it never polls.
package vswitch

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
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A Switch is the local Open vSwitch. Its methods may be called from several
// goroutines at once.
type Switch struct {
	db     *ovsdb.DB
	remote string
	cancel context.CancelFunc
	closed chan struct{}
	// widen connects once more, to follow all rows; nil if they are followed already: see ConnectFor.
	widen func(context.Context) (*Switch, error)
	// readTimeout is constant but for tests.
	readTimeout time.Duration

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change
	ids       map[string]string
	listeners []func(map[string]string)
	watchers  []*func()
}

// IsConflict reports whether err is about a port or bridge of another owner. Only the owner can remove it.
func IsConflict(err error) bool { return errors.As(err, new(*conflictError)) }

type conflictError struct{ error }

// conflict returns an error recognized by IsConflict.
func conflict(format string, args ...any) error { return &conflictError{fmt.Errorf(format, args...)} }

// tables are the followed tables. Columns with frequent changes, such as statistics, are not followed.
func tables() []ovsdb.Table {
	return []ovsdb.Table{
		{Name: vswitchdb.OpenvSwitchTable, Columns: []string{"bridges", "cur_cfg", "datapaths", "external_ids", "ovs_version"}},
		{Name: vswitchdb.BridgeTable, Columns: []string{"name", "ports", "datapath_type", "fail_mode", "other_config", "external_ids"}},
		{Name: vswitchdb.PortTable, Columns: []string{"name", "interfaces", "qos", "tag", "trunks", "vlan_mode"}},
		{Name: vswitchdb.InterfaceTable, Columns: []string{"name", "type", "mac", "mac_in_use", "mtu_request", "ofport", "error", "external_ids",
			"options", "ingress_policing_rate", "ingress_policing_burst"}},
		{Name: vswitchdb.DatapathTable, Columns: []string{"capabilities", "ct_zones"}},
		{Name: vswitchdb.CTZoneTable, Columns: []string{"external_ids"}},
		{Name: vswitchdb.QoSTable, Columns: []string{"type", "other_config", "external_ids"}},
	}
}

// Connect connects to the database in a run directory, such as /var/run/openvswitch. ctx limits the first
// connection only; it is kept, and renewed when lost, until Close. log may be nil.
func Connect(ctx context.Context, rundir string, log *logrus.Entry) (*Switch, error) {
	return connect(ctx, rundir, tables(), log)
}

func connect(ctx context.Context, rundir string, tables []ovsdb.Table, log *logrus.Entry) (*Switch, error) {
	m, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		vswitchdb.OpenvSwitchTable: &vswitchdb.OpenvSwitch{},
		vswitchdb.BridgeTable:      &vswitchdb.Bridge{},
		vswitchdb.PortTable:        &vswitchdb.Port{},
		vswitchdb.InterfaceTable:   &vswitchdb.Interface{},
		vswitchdb.DatapathTable:    &vswitchdb.Datapath{},
		vswitchdb.CTZoneTable:      &vswitchdb.CTZone{},
		vswitchdb.QoSTable:         &vswitchdb.QoS{},
	})
	if err != nil {
		return nil, fmt.Errorf("making the model of Open vSwitch: %w", err)
	}
	s := &Switch{remote: "unix:" + rundir + "/db.sock", changed: make(chan struct{}), closed: make(chan struct{}), readTimeout: readTimeout}
	s.db, err = ovsdb.Open(ctx, ovsdb.Options{
		Name: "Open vSwitch", Remotes: []string{s.remote}, Model: m, Needs: "Open vSwitch 3.1", Tables: tables, Log: log,
		AnyMember: true, // it is never a cluster
	})
	if err != nil {
		return nil, fmt.Errorf("%w: is ovsdb-server running?", err)
	}
	root, err := root(ctx, s.db.Client())
	if err != nil {
		s.db.Close()
		return nil, fmt.Errorf("connecting to Open vSwitch at %s: %w", s.remote, err)
	}
	s.ids = root.ExternalIDs
	s.db.Handle(s.handler())
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	go func() {
		defer close(s.closed)
		_ = s.db.Run(run, s.up, nil) // ends with cancel only
	}()
	return s, nil
}

// Close ends the connection.
func (s *Switch) Close() {
	s.cancel()
	<-s.closed
}

// Transactions returns how many transactions were sent.
func (s *Switch) Transactions() uint64 { return s.db.Transactions() }

// ExternalIDs returns external_ids of the table Open_vSwitch, now or at the time the connection was lost.
func (s *Switch) ExternalIDs() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ids)
}

// OnExternalIDs has f called with each change of external_ids of the table
// Open_vSwitch. f must not block.
func (s *Switch) OnExternalIDs(f func(map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

// OnChange has f called with each change of followed rows, and with each new connection, until stop is called. f
// must not block.
func (s *Switch) OnChange(f func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, &f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers = slices.DeleteFunc(slices.Clone(s.watchers), func(w *func()) bool { return w == &f })
	}
}

// handler wakes the waiting goroutines, and follows external_ids.
func (s *Switch) handler() cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { s.event(row) },
		UpdateFunc: func(_ string, _, row model.Model) { s.event(row) },
		DeleteFunc: func(string, model.Model) { s.wake() },
	}
}

// up reads the changes made between two connections.
func (s *Switch) up() {
	if c := s.db.Client(); c != nil && c.Cache() != nil {
		for _, row := range c.Cache().Table(vswitchdb.OpenvSwitchTable).RowsShallow() {
			s.event(row)
		}
	}
	s.wake()
}

func (s *Switch) event(row model.Model) {
	defer s.wake()
	root, ok := row.(*vswitchdb.OpenvSwitch)
	if !ok {
		return
	}
	s.mu.Lock()
	same := maps.Equal(s.ids, root.ExternalIDs)
	s.ids = root.ExternalIDs
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	if same {
		return
	}
	for _, f := range listeners {
		f(maps.Clone(root.ExternalIDs))
	}
}

// wake has the waiting goroutines check again.
func (s *Switch) wake() {
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	watchers := s.watchers
	s.mu.Unlock()
	for _, f := range watchers {
		(*f)()
	}
}

func (s *Switch) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// await calls check now and after each change, until it is done, fails or
// ctx ends.
func (s *Switch) await(ctx context.Context, check func(client.Client) (bool, error)) error {
	for {
		changed := s.next()
		if c := s.db.Client(); c != nil {
			if done, err := check(c); done || err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-s.closed:
			return ovsdb.ErrNotConnected
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readTimeout bounds the wait for a silent server, or for the next connection, for callers without a deadline.
const readTimeout = 30 * time.Second

// read calls f with the present state of the database.
func (s *Switch) read(ctx context.Context, f func(client.Client) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.readTimeout, fmt.Errorf("no answer from Open vSwitch's database within %v: is ovsdb-server running?", s.readTimeout))
		defer cancel()
	}
	return s.await(ctx, func(c client.Client) (bool, error) {
		err := s.db.Sync(ctx)
		if errors.Is(err, ovsdb.ErrNotConnected) {
			return false, nil // wait for the next connection
		}
		if err == nil {
			err = f(c)
		}
		return true, err
	})
}

// A plan is a list of operations, and their description for people.
type plan struct {
	ops   []libovsdb.Operation
	lines []string
}

func (p *plan) add(ops []libovsdb.Operation, err error) error {
	p.ops = append(p.ops, ops...)
	return err
}

func (p *plan) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// errVanished means that another client deleted a row during our change.
var errVanished = errors.New("a row was deleted meanwhile")

// attempts limits how often a change is planned again after a conflict with another client, such as ovn-controller,
// or a restart of the server.
const attempts = 5

// converge plans and commits. It returns the plan and the configuration number of the commit for ovs-vswitchd (0:
// nothing to do).
func (s *Switch) converge(ctx context.Context, build func(client.Client) (plan, error)) (plan, int, error) {
	for attempt := 1; ; attempt++ {
		var p plan
		err := s.read(ctx, func(c client.Client) (err error) {
			p, err = build(c)
			return err
		})
		if err != nil || len(p.ops) == 0 {
			return p, 0, err
		}
		cfg, err := s.commit(ctx, p.ops)
		var taken *libovsdb.ConstraintViolation
		again := errors.As(err, &taken) || errors.Is(err, errVanished) || errors.Is(err, ovsdb.ErrNotConnected)
		if err == nil || attempt == attempts || !again {
			return p, cfg, err
		}
	}
}

// commit commits operations and raises Open_vSwitch.next_cfg with them, as ovs-vsctl does; it returns the new
// number. Once cur_cfg has reached it, ovs-vswitchd has applied the operations.
func (s *Switch) commit(ctx context.Context, ops []libovsdb.Operation) (int, error) {
	all := append(slices.Clone(ops), libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable,
		// True of the only row; libovsdb does not send an empty condition.
		Where:     []libovsdb.Condition{libovsdb.NewCondition("next_cfg", libovsdb.ConditionGreaterThanOrEqual, 0)},
		Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("next_cfg", libovsdb.MutateOperationAdd, 1)},
	}, libovsdb.Operation{
		Op: libovsdb.OperationSelect, Table: vswitchdb.OpenvSwitchTable, Columns: []string{"next_cfg"},
	})
	results, err := s.db.Transact(ctx, all)
	if err != nil {
		return 0, err
	}
	for i, op := range ops {
		if op.Op != libovsdb.OperationInsert && results[i].Count == 0 {
			return 0, fmt.Errorf("%s %s: %w", op.Op, op.Table, errVanished)
		}
	}
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		return 0, errNoRoot
	}
	cfg, ok := last.Rows[0]["next_cfg"].(float64)
	if !ok {
		return 0, fmt.Errorf("reading next_cfg: %v is not a number", last.Rows[0]["next_cfg"])
	}
	return int(cfg), nil
}

// AwaitVswitchd waits until ovs-vswitchd has applied the database. It writes a new configuration number.
func (s *Switch) AwaitVswitchd(ctx context.Context) error {
	cfg, err := s.commit(ctx, nil)
	if err == nil {
		err = s.await(ctx, func(c client.Client) (bool, error) { return applied(ctx, c, cfg) })
	}
	if err != nil {
		return fmt.Errorf("waiting for ovs-vswitchd: %w%s", err, s.hint(ctx, err))
	}
	return nil
}

var errNoRoot = errors.New("the database has no row in table Open_vSwitch: has ovs-vswitchd or ovs-ctl never been started?")

// root returns the only row of the table Open_vSwitch.
func root(ctx context.Context, c client.Client) (*vswitchdb.OpenvSwitch, error) {
	var rows []*vswitchdb.OpenvSwitch
	if err := list(ctx, c, &rows); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errNoRoot
	}
	return rows[0], nil
}

// list reads all rows of a table.
func list(ctx context.Context, c client.Client, rows any) error {
	if c == nil {
		return ovsdb.ErrNotConnected
	}
	if err := c.List(ctx, rows); err != nil {
		return fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	return nil
}

// get reads the row with the name set in row, or returns false.
func get(ctx context.Context, c client.Client, row model.Model) (bool, error) {
	err := c.Get(ctx, row)
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	return true, nil
}

// applied reports whether ovs-vswitchd has applied the configuration cfg.
func applied(ctx context.Context, c client.Client, cfg int) (bool, error) {
	r, err := root(ctx, c)
	return err == nil && r.CurCfg >= cfg, err
}
