// Package watcher follows the Kubernetes API and writes the rows that follow from its objects into the Northbound
// database.
//
//	lib/kube ──events──▶ engine: desired.World ──rows──▶ lib/nbsync ──▶ database
//	                        └──────addresses──▶ annotations of pods
//
// One goroutine, the engine's, computes everything. Parts of the engine with a state of their own are packages below
// this one; package lib lists them.
package watcher

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/nbsync/owned"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/watcher/candidate"
	"ovn-k8s/lib/watcher/core"
	"ovn-k8s/lib/watcher/garbage"
	"ovn-k8s/lib/watcher/identity"
	"ovn-k8s/lib/watcher/records"
	"ovn-k8s/lib/watcher/registry"
)

// Program is the watcher's name in logs, Events and API requests.
const Program = "ovn-k8s-watcher"

// Options are the parameters of a watcher.
type Options struct {
	// Flags are the settings of the command line: see settings.Flags.
	Flags map[string]string
	// Log returns the log of a module. nil is silent.
	Log func(module string) *logrus.Entry
	// Out gets the output of fetching a CA certificate.
	Out io.Writer
	// Extensions add kinds of objects, and their rows.
	Extensions []Extension
	// Companion makes the topology; nil: commands do.
	Companion Companion
	// Informers shares them with other roles of the process, see kube.Share. nil: the watcher has its own.
	Informers kube.Sharing
	// Lease returns the times of the Lease in a configuration; nil, or the zero value: the default.
	Lease func(config.Config) kube.LeaseTimes
	// Status is called with one line about the watcher's activity, or the missing prerequisite. It may be nil.
	Status func(text string)
}

// Errors of a host before its set-up. Scripts may match the texts: they are the originals'.
var (
	ErrNoSocket        = errors.New("OVN NB database does not have unix socket (and ovn-nb is not set)")
	ErrNoClusterRouter = errors.New(`K8S_CLUSTER_ROUTER not set: run "ovn-k8s-overlay master-init" first`)
)

// A Watcher serves one cluster. The zero value is ready to Run.
type Watcher struct {
	Options
	engine      atomic.Pointer[engine] // of the active watcher, nil on standby
	connections atomic.Pointer[connections]
	companionUp atomic.Pointer[func()] // of the Companion; nil: it does not run
}

// connections are a watcher's connections.
type connections struct {
	config     config.Config
	db         *ovsdb.DB
	cluster    *kube.Cluster
	process    identity.Process
	extensions []Extension
	state      candidate.Connection // of db
	wait       func(reason string)  // see settings.Session
}

// lease is the Lease of the active watcher, copy the ConfigMap with a copy of the topology.
func (c *connections) lease() types.NamespacedName {
	return types.NamespacedName{Namespace: c.config.ConfigNamespace, Name: names.WatcherLease}
}

func (c *connections) copy() types.NamespacedName {
	return registry.ConfigMap(c.config.ConfigNamespace)
}

func (w *Watcher) log(module string) *logrus.Entry { return settings.Log(w.Log, module) }

// Run serves the cluster until ctx ends. It calls ready after connecting to the Northbound database, or when it
// begins to wait for a prerequisite. When a setting in the local Open vSwitch changes, Run continues with the new
// one; a changed token is used from the next request on. After ready, Run fails only if the database belongs to
// another cluster.
func (w *Watcher) Run(ctx context.Context, ready func()) error {
	return w.runtime().Run(ctx, ready, w.Role())
}

// Role is the watcher as a role of a process that may have others.
func (w *Watcher) Role() settings.Role {
	return settings.Role{
		Log: w.log("watcher"), Reader: config.Watcher, Check: needs, Accept: w.accepts, Serve: w.serve,
		Fatal: func(err error) bool { return errors.As(err, new(records.Foreign)) },
	}
}

func (w *Watcher) runtime() settings.Runtime {
	return settings.Runtime{Flags: w.Flags, Log: w.log, States: settings.NewStates(w.Status)}
}

// needs returns an error about missing settings.
func needs(cfg config.Config) error {
	switch {
	case len(cfg.NB) == 0:
		return ErrNoSocket
	case cfg.APIServer == "":
		return config.ErrNoAPIServer
	}
	return nil
}

// accepts returns an error if the Companion cannot go on with other settings for the same database.
func (w *Watcher) accepts(cfg config.Config) error {
	c := w.connections.Load()
	if c == nil || w.Companion == nil || !slices.Equal(cfg.NB, c.config.NB) {
		return nil
	}
	links := w.companion(c, nil)
	links.Config = cfg
	return w.Companion.Check(links, nil, settings.ErrUndecided)
}

// ShowConfig prints every setting with its value and source.
func (w *Watcher) ShowConfig(ctx context.Context, out io.Writer) error {
	sw, err := w.runtime().OptionalSwitch(ctx, w.log("watcher"))
	if err != nil {
		return err
	}
	if sw != nil {
		defer sw.Close()
	}
	return w.runtime().ShowConfig(ctx, out, sw)
}

// serve runs with one configuration until ctx ends.
func (w *Watcher) serve(ctx context.Context, s settings.Session, ready func()) error {
	kept := garbage.Limit()
	defer runtime.KeepAlive(kept)
	garbage.Allow() // while rows are read
	c, err := w.connect(ctx, s.Config, s.Token)
	garbage.Restrict()
	if err != nil {
		return err
	}
	defer c.cluster.Close()
	defer c.db.Close()
	c.wait = s.Wait
	if err := w.check(ctx, c); err != nil {
		return err
	}
	w.connections.Store(c)
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	t := &tenure{ctx: ctx, cancel: cancel, w: w, connections: c, log: w.log("watcher")}
	defer t.end()
	defer cancel(nil)
	wg.Go(func() { _ = c.db.Run(ctx, func() { c.state.Up(); w.onUp() }, c.state.Down) }) // ends with ctx
	// Leader remembers the latest token: the cache has only that, and terms count on even after its removal.
	defer records.New(c.db).FollowToken(func() { _, _ = c.db.Leader() })()
	ready()
	wg.Go(func() { w.report(ctx, c) })
	who := kube.Candidate{Identity: c.process.String(), Dead: c.process.Dead, Unable: c.state.Unable, Elected: func(holder string) {
		if holder != "" && holder != c.process.String() {
			w.log("watcher").Infof("standby: %s", c.whoLeads(holder))
			t.superseded(holder)
		}
	}}
	if w.Lease != nil {
		who.Times = w.Lease(c.config)
	}
	for {
		err := c.cluster.Lead(ctx, w.log("watcher"), c.lease(), who, t.lead)
		if cause := context.Cause(ctx); errors.As(cause, new(records.Foreign)) {
			return cause
		}
		if errors.As(err, new(candidate.Lost)) {
			w.log("watcher").Warnf("%v: the Lease %s was released, and is taken again with a connection", err, c.lease())
			continue
		}
		if !errors.Is(err, ovsdb.ErrDeposed) {
			return err
		}
		w.log("watcher").Warnf("%v; this one has stopped writing: is there a second watcher, or was the token external_ids:%s of NB_Global changed by hand or with a database from a backup?", err, names.Leader)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(deposedPause):
		}
	}
}

// deposedPause is the time for which a deposed watcher leaves the Lease to others.
const deposedPause = 5 * time.Second

// whoLeads describes the leader.
func (c *connections) whoLeads(holder string) string {
	leader, err := c.db.Leader()
	return candidate.Describe(holder, leader, err)
}

// connect connects to the Northbound database, and prepares for the API server. token may be nil.
func (w *Watcher) connect(ctx context.Context, cfg config.Config, token func() string) (*connections, error) {
	server, err := kube.Connect(cfg, token, Program)
	if err != nil {
		return nil, settings.Wrong(err)
	}
	tlsConfig, err := w.tls(ctx, cfg)
	if err != nil {
		return nil, err
	}
	model, err := ovsdb.NBModel()
	if err != nil {
		return nil, err
	}
	c := &connections{config: cfg, process: identity.This(cfg.SystemID), extensions: w.Extensions}
	start := time.Now()
	if c.db, err = ovsdb.Open(ctx, ovsdb.Options{
		Name: "NB", Remotes: cfg.NB, TLS: tlsConfig, Model: model, Tables: followed(), Unindexed: true, Needs: "OVN 23.03",
		Reading: c.state.Progress, Log: w.log("ovsdb"),
	}); err != nil {
		return nil, err
	}
	c.state.Read(time.Since(start))
	if c.cluster, err = kube.NewCluster(server, Program, w.Informers, moreKinds(w.Extensions)...); err != nil {
		c.db.Close()
		return nil, err
	}
	return c, nil
}

// newEngine returns an engine with an empty World. It writes rows to the Northbound database by transact.
func (w *Watcher) newEngine(c *connections, transact nbsync.DB) *engine {
	return newEngine(c, w.log("watcher"), core.New(), newNorthbound(c.db, transact, w.log))
}

// followed lists the watcher's tables and columns in the Northbound database: those to compare, and the addresses
// given by ovn-northd to ports of the Python era.
func followed() []ovsdb.Table {
	tables := []ovsdb.Table{{Name: nbdb.NBGlobalTable, Columns: []string{"external_ids"}}}
	for name, columns := range owned.Columns() {
		if name == nbdb.LogicalSwitchPortTable {
			columns = append(columns, "dynamic_addresses")
		}
		tables = append(tables, ovsdb.Table{Name: name, Columns: columns})
	}
	return tables
}

func (w *Watcher) tls(ctx context.Context, cfg config.Config) (*tls.Config, error) {
	out := w.Out
	if out == nil {
		out = io.Discard
	}
	return ovsdb.TLSConfig(ctx, ovsdb.Files{PrivateKey: cfg.NBPrivateKey, Certificate: cfg.NBCertificate, CACert: cfg.NBCACert}, cfg.NB, out)
}

// check returns, before the watcher is ready, errors that keep it from starting.
func (w *Watcher) check(ctx context.Context, c *connections) error {
	_, found, err := records.New(c.db).Topology()
	if err != nil && w.Companion == nil && !errors.As(err, new(topology.Unfit)) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, registry.Timeout)
	defer cancel()
	saved, err := registry.Read(ctx, c.cluster, c.copy())
	waiting := kube.Waiting(err)
	switch {
	case waiting != "" && (w.Companion != nil || !kube.Refuses(err)): // the token is read again; the process may have other roles
	case found && errors.As(err, new(registry.Unreadable)): // it is not needed now, and written anew
	case err != nil:
		return settings.Wrong(err)
	case saved == nil && !found && w.Companion == nil:
		return settings.Wrong(ErrNoClusterRouter)
	}
	if w.Companion != nil {
		if err := w.Companion.Check(w.companion(c, nil), saved, err); err != nil {
			return err
		}
	}
	if waiting != "" {
		w.log("watcher").Warn("waiting: " + waiting)
		c.wait(waiting)
	}
	return nil
}

// onUp is called for each connection to the database.
func (w *Watcher) onUp() {
	if e := w.engine.Load(); e != nil {
		e.send(e.reconnected)
	}
	if f := w.companionUp.Load(); f != nil {
		(*f)()
	}
}
