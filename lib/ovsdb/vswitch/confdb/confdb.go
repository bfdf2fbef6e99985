// Package confdb follows the database of the local Open vSwitch (ovs-vswitchd.conf.db(5)). It finds rows in the
// copy, plans changes over them, commits a plan as one transaction, and waits for ovs-vswitchd. It never polls.
package confdb

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
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A DB is the followed database. Its methods may be called from several goroutines at once.
type DB struct {
	db     *ovsdb.DB
	remote string
	cancel context.CancelFunc
	closed chan struct{}
	// ReadTimeout bounds the wait for a silent server, or for the next connection, for callers without a deadline.
	// It is constant but for tests.
	ReadTimeout time.Duration

	using     sync.Mutex // held from reading the row of Open_vSwitch until its external_ids are used, so an older row never comes last
	mu        sync.Mutex
	waiting   map[string][]chan struct{} // of Await by the name of an interface, "": for all rows; each has room for one value
	ids       map[string]string
	listeners []func(map[string]string)
	watchers  []*func()
}

// Tables are all tables to follow. Columns with frequent changes, such as statistics, are not followed.
func Tables() []ovsdb.Table {
	return []ovsdb.Table{
		{Name: vswitchdb.OpenvSwitchTable, Columns: []string{"bridges", "cur_cfg", "datapath_types", "datapaths", "external_ids", "next_cfg", "other_config", "ovs_version", "ssl"}},
		{Name: vswitchdb.BridgeTable, Columns: []string{"name", "ports", "datapath_type", "fail_mode", "other_config", "external_ids"}},
		{Name: vswitchdb.PortTable, Columns: []string{"name", "interfaces", "qos", "tag", "trunks", "cvlans", "vlan_mode", "other_config", "external_ids"}},
		{Name: vswitchdb.InterfaceTable, Columns: []string{"name", "type", "mac", "mac_in_use", "mtu_request", "ofport", "ofport_request", "error", "external_ids",
			"options", "other_config", "ingress_policing_rate", "ingress_policing_burst"}},
		{Name: vswitchdb.DatapathTable, Columns: []string{"capabilities", "ct_zones"}},
		{Name: vswitchdb.CTZoneTable, Columns: []string{"external_ids", "timeout_policy"}},
		{Name: vswitchdb.CTTimeoutPolicyTable, Columns: []string{"timeouts"}},
		{Name: vswitchdb.QoSTable, Columns: []string{"type", "other_config", "external_ids"}},
		{Name: vswitchdb.SSLTable, Columns: []string{"private_key", "certificate", "ca_cert", "bootstrap_ca_cert", "external_ids"}},
	}
}

// Connect connects to the database in a run directory, such as /var/run/openvswitch, and follows tables. ctx limits
// the first connection only; it is kept, and renewed when lost, until Close. log may be nil.
func Connect(ctx context.Context, rundir string, tables []ovsdb.Table, log *logrus.Entry) (*DB, error) {
	m, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		vswitchdb.OpenvSwitchTable:     &vswitchdb.OpenvSwitch{},
		vswitchdb.BridgeTable:          &vswitchdb.Bridge{},
		vswitchdb.PortTable:            &vswitchdb.Port{},
		vswitchdb.InterfaceTable:       &vswitchdb.Interface{},
		vswitchdb.DatapathTable:        &vswitchdb.Datapath{},
		vswitchdb.CTZoneTable:          &vswitchdb.CTZone{},
		vswitchdb.CTTimeoutPolicyTable: &vswitchdb.CTTimeoutPolicy{},
		vswitchdb.QoSTable:             &vswitchdb.QoS{},
		vswitchdb.SSLTable:             &vswitchdb.SSL{},
	})
	if err != nil {
		return nil, fmt.Errorf("making the model of Open vSwitch: %w", err)
	}
	d := &DB{remote: "unix:" + rundir + "/db.sock", waiting: map[string][]chan struct{}{}, closed: make(chan struct{}), ReadTimeout: readTimeout}
	d.db, err = ovsdb.Open(ctx, ovsdb.Options{
		Name: "Open vSwitch", Remotes: []string{d.remote}, Model: m, Needs: "Open vSwitch 3.1", Tables: tables, Log: log,
		AnyMember: true, // it is never a cluster
	})
	if err != nil {
		return nil, fmt.Errorf("%w: is ovsdb-server running?", err)
	}
	root, err := Root(ctx, d.db.Client())
	if err != nil {
		d.db.Close()
		return nil, fmt.Errorf("connecting to Open vSwitch at %s: %w", d.remote, err)
	}
	d.ids = root.ExternalIDs
	d.db.Handle(d.handler())
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.cancel = cancel
	go func() {
		defer close(d.closed)
		_ = d.db.Run(run, d.connected, nil) // ends with cancel only
	}()
	return d, nil
}

// Close ends the connection.
func (d *DB) Close() {
	d.cancel()
	<-d.closed
}

// Transactions returns how many transactions were sent.
func (d *DB) Transactions() uint64 { return d.db.Transactions() }

// ExternalIDs returns external_ids of the table Open_vSwitch, now or at the time the connection was lost.
func (d *DB) ExternalIDs() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.ids)
}

// Refresh waits until the copy has all transactions committed before the call, external_ids included. The error wraps
// ovsdb.ErrNotConnected without a connection.
func (d *DB) Refresh(ctx context.Context) error {
	if err := d.db.Sync(ctx); err != nil {
		return err
	}
	d.useRoot()
	return nil
}

// OnExternalIDs has f called with each change of external_ids of the table
// Open_vSwitch. f must not block.
func (d *DB) OnExternalIDs(f func(map[string]string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listeners = append(d.listeners, f)
}

// OnChange has f called with each change of followed rows, and with each new connection, until stop is called. f
// must not block.
func (d *DB) OnChange(f func()) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, &f)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.watchers = slices.DeleteFunc(slices.Clone(d.watchers), func(w *func()) bool { return w == &f })
	}
}

// tunnelTypes are those of ovn-encap-type of ovn-controller(8).
var tunnelTypes = []string{"geneve", "stt", "vxlan"}

// IsTunnel reports whether interfaces of a type are tunnels.
func IsTunnel(interfaceType string) bool { return slices.Contains(tunnelTypes, interfaceType) }

// Tunnels returns the number of tunnels in the copy, of any program. ok is false without a connection.
func (d *DB) Tunnels() (n int, ok bool) {
	rows := d.db.Cache()
	if rows == nil {
		return 0, false
	}
	for _, row := range rows.Table(vswitchdb.InterfaceTable).RowsShallow() {
		if IsTunnel(row.(*vswitchdb.Interface).Type) {
			n++
		}
	}
	return n, true
}

// handler wakes the waiting goroutines, and follows external_ids.
func (d *DB) handler() cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { d.event(row) },
		UpdateFunc: func(_ string, _, row model.Model) { d.event(row) },
		DeleteFunc: func(_ string, row model.Model) { d.wake(row) },
	}
}

// event handles a changed row. The event may be old: Refresh may have used a newer row of Open_vSwitch.
func (d *DB) event(row model.Model) {
	if _, ok := row.(*vswitchdb.OpenvSwitch); ok {
		d.useRoot()
	}
	d.wake(row)
}

// connected handles a new connection: anything may have changed between the two.
func (d *DB) connected() {
	d.useRoot()
	d.mu.Lock()
	for name := range d.waiting {
		d.poke(name)
	}
	d.mu.Unlock()
	d.tell()
}

// useRoot uses the present row of Open_vSwitch.
func (d *DB) useRoot() {
	d.using.Lock()
	defer d.using.Unlock()
	if rows := d.db.Cache(); rows != nil {
		for _, row := range rows.Table(vswitchdb.OpenvSwitchTable).RowsShallow() {
			d.use(row.(*vswitchdb.OpenvSwitch))
		}
	}
}

// use has the listeners called if external_ids have changed.
func (d *DB) use(root *vswitchdb.OpenvSwitch) {
	d.mu.Lock()
	same := maps.Equal(d.ids, root.ExternalIDs)
	d.ids = root.ExternalIDs
	listeners := slices.Clone(d.listeners)
	d.mu.Unlock()
	if same {
		return
	}
	for _, f := range listeners {
		f(maps.Clone(root.ExternalIDs))
	}
}

// wake has the goroutines check again that wait for a change of a row.
func (d *DB) wake(row model.Model) {
	d.mu.Lock()
	d.poke("")
	if i, ok := row.(*vswitchdb.Interface); ok && i.Name != "" {
		d.poke(i.Name)
	}
	d.mu.Unlock()
	d.tell()
}

// poke wakes the goroutines waiting under a name. d.mu is held.
func (d *DB) poke(name string) {
	for _, c := range d.waiting[name] {
		select {
		case c <- struct{}{}:
		default: // it is awake
		}
	}
}

// tell calls the functions of OnChange.
func (d *DB) tell() {
	d.mu.Lock()
	watchers := d.watchers
	d.mu.Unlock()
	for _, f := range watchers {
		(*f)()
	}
}

// wait returns a channel with a value after changes of an interface, "": of any row.
func (d *DB) wait(name string) (changed <-chan struct{}, end func()) {
	c := make(chan struct{}, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[name] = append(d.waiting[name], c)
	return c, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waiting[name] = slices.DeleteFunc(d.waiting[name], func(other chan struct{}) bool { return other == c })
		if len(d.waiting[name]) == 0 {
			delete(d.waiting, name)
		}
	}
}

// Await calls check now and after each change, until it is done, fails or
// ctx ends.
func (d *DB) Await(ctx context.Context, check func(client.Client) (bool, error)) error {
	return d.AwaitInterface(ctx, "", check)
}

// AwaitInterface is Await for a check of one interface. It calls check after changes of that row only: when a hundred pods start
// together, they do not wake each other.
func (d *DB) AwaitInterface(ctx context.Context, name string, check func(client.Client) (bool, error)) error {
	changed, end := d.wait(name)
	defer end()
	for {
		if c := d.db.Client(); c != nil {
			if done, err := check(c); done || err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-d.closed:
			return ovsdb.ErrNotConnected
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const readTimeout = 30 * time.Second

// Read calls f with the present state of the database, and once more if the connection is lost meanwhile.
func (d *DB) Read(ctx context.Context, f func(client.Client) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.ReadTimeout, fmt.Errorf("no answer from Open vSwitch's database within %v: is ovsdb-server running?", d.ReadTimeout))
		defer cancel()
	}
	return d.Await(ctx, func(c client.Client) (bool, error) {
		err := d.db.Sync(ctx)
		if err == nil {
			err = f(c)
		}
		if errors.Is(err, ovsdb.ErrNotConnected) {
			return false, nil // wait for the next connection
		}
		return true, err
	})
}

// ReadCopy calls f with the copy, which may be older than the database. The error is ovsdb.ErrNotConnected without a connection.
func (d *DB) ReadCopy(f func(client.Client) error) error {
	c := d.db.Client()
	if c == nil {
		return ovsdb.ErrNotConnected
	}
	return f(c)
}
