package watcher

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/prober"
	"ovn-k8s/lib/reconcile"
)

// An event is a change for the engine's goroutine to record. It returns the units to compute again.
type event func() []nb.Unit

// mostUnits is the largest number of units compared at once: their rows take about 2 kB each. Related units should
// fit, such as the pods of a namespace with a new label: their rows change in one transaction.
const mostUnits = 20000

// An engine keeps the database and the annotations equal to the World's rows and annotations. The goroutine of its
// loop owns everything but send, status and the fields used by them.
type engine struct {
	links      *links
	term       *ovsdb.Term // nil: it only compares
	log        *logrus.Entry
	loop       reconcile.Loop[event, nb.Unit]
	applier    Applier
	worlds     World          // of the objects of all kinds
	world      *desired.World // of the network
	northbound *northbound    // the applier
	notes      *annotator
	// prober tests the hosts of gateways. rejected are the firewalls between, as far as reported.
	prober   *prober.Prober
	rejected map[string]netip.Addr
	kinds    []kube.Kind // of the objects to follow
	nodes    string      // the name of the kind of Nodes
	// missing are the names of kinds without a complete list so far. Until it is empty, only gateways are written.
	missing    map[string]bool
	fail       context.CancelCauseFunc // ends the engine for good
	full       bool                    // all units may be written: this watcher holds the Lease
	asked      bool                    // the Southbound database was asked for hosts, or could not be
	restore    bool                    // the token was removed: write it again
	lapse      atomic.Pointer[lapse]   // for people; nil: none
	topologies topology.Parser
	saved      *topology.Cluster // the copy of the topology, as far as known
	// disconnected are the pods with an Event of tellDisconnected.
	disconnected map[nb.Unit]bool
	copying      copying
	plaints      plaints           // the reported failures
	probing      bool              // a retry of one held unit is scheduled
	unwritten    map[nb.Unit]error // errors of annotations of units in the batch
	pace         pacer
	work         Work // of the last sync
	sweep        sweeper
	// topologyStale and probesStale: an event to read the topology or the prober's results is on its way.
	// hostsChanged: the hosts of gateways may differ from those known to the prober.
	topologyStale, probesStale atomic.Bool
	hostsChanged               bool

	mismatches mismatches
	unowned    []string // the reported load balancers without an owner
	declared   []string // the reported gateways declared down by their hosts
}

func newEngine(l *links, log func(string) *logrus.Entry) *engine {
	e := &engine{
		links: l, hostsChanged: true, log: log("watcher"), northbound: newNorthbound(l.db, log("nbsync")),
		world: desired.NewWorld(), kinds: append(kube.Kinds(), moreKinds(l.extensions)...), nodes: kube.KindOf(&corev1.Node{}).Name, missing: map[string]bool{topologyKind: true},
		plaints: newPlaints(), mismatches: newMismatches(), unwritten: map[nb.Unit]error{}, fail: func(error) {},
		copying: copying{jobs: make(chan topology.Cluster, 1)},
	}
	e.worlds, e.applier = newWorlds(network{e.world}, l.extensions), e.northbound
	for _, k := range e.kinds {
		e.missing[k.Name] = true
	}
	e.sweep.sweep = func() {
		runtime.GC() // or new objects would be spread over the garbage
		e.send(e.compact)
	}
	e.world.Put(servicecidr.Ranges(l.config.ServiceCIDRs))
	e.world.Put(protected(l.config))
	e.notes = newAnnotator(l.cluster, e.world, e.send)
	e.prober = prober.New(func() {
		if !e.probesStale.Swap(true) {
			e.send(e.probed)
		}
	})
	e.loop = reconcile.Loop[event, nb.Unit]{
		Record:  func(ev event) []nb.Unit { return ev() },
		OnDirty: e.prompt, Sync: e.reconcile, Synced: e.complain, MinInterval: e.gap, MaxWait: hold, Quiet: lull,
		MaxBatch: mostUnits, Compare: desired.Compare, Resync: 10 * time.Minute, All: e.all,
	}
	return e
}

// The engine also waits for these, though they are no kinds of API objects.
const (
	topologyKind = "topology"
	ownerKind    = "a database of this cluster"
)

// send hands an event to the engine's goroutine. It does not block.
func (e *engine) send(ev event) { e.loop.Send(ev) }

// run runs the engine until ctx ends.
func (e *engine) run(ctx context.Context) error {
	e.log.Info("active: following the API server")
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if why := context.Cause(ctx); why != ctx.Err() {
			e.log.Infof("no longer active: %v", why)
			return
		}
		e.log.Info("no longer active")
	}()
	e.fail = cancel
	defer e.applier.Follow(func(u nb.Unit) {
		e.send(func() []nb.Unit { return []nb.Unit{u} })
	})()
	if e.term != nil {
		e.log.Infof("leads with term %d", e.term.Leader().Term)
		defer e.links.db.Handle(globalHandler(e.globalChanged))()
		e.globalChanged()
	}
	defer e.links.db.Handle(routerHandler(e.topologyChanged))()
	for _, a := range assignments(e.links.db) {
		e.world.Put(a)
	}
	e.world.Put(selectionBefore(e.links.db))
	e.send(e.refreshTopology)
	wg.Go(func() { e.loadSavedTopology(ctx) })
	wg.Go(func() { e.followObjects(ctx) })
	wg.Go(func() { e.copyTopologies(ctx) })
	wg.Go(func() { e.prober.Run(ctx) })
	wg.Go(func() { e.followChassis(ctx) })
	err := e.loop.Run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// checkTerm ends the engine if another watcher leads.
func (e *engine) checkTerm() {
	if e.term == nil {
		return
	}
	if err := e.term.Check(); err != nil {
		e.fail(err)
	}
}

// globalHandler calls changed when external_ids of NB_Global change. No other column is monitored.
func globalHandler(changed func()) cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc: func(table string, _ model.Model) {
			if table == nbdb.NBGlobalTable {
				changed()
			}
		},
		UpdateFunc: func(table string, _, _ model.Model) {
			if table == nbdb.NBGlobalTable {
				changed()
			}
		},
	}
}

// checkOwner ends the engine if the database is not this cluster's. Nothing is
// written from then on.
func (e *engine) checkOwner() {
	if err := checkOwner(e.links.db, e.world.Facts().UID); err != nil {
		e.missing[ownerKind] = true
		e.fail(err)
	}
}

// routerHandler calls changed when a cluster router appears, disappears, or has other external_ids. There may be
// thousands of other routers, those of gateways.
func routerHandler(changed func()) cache.EventHandler {
	ids := func(m model.Model) map[string]string {
		if r, ok := m.(*nbdb.LogicalRouter); ok && r.ExternalIDs[names.ClusterRouterTag] == "yes" {
			return r.ExternalIDs
		}
		return nil
	}
	return &cache.EventHandlerFuncs{
		AddFunc: func(_ string, row model.Model) {
			if ids(row) != nil {
				changed()
			}
		},
		UpdateFunc: func(_ string, before, after model.Model) {
			if !maps.Equal(ids(before), ids(after)) {
				changed()
			}
		},
		DeleteFunc: func(_ string, row model.Model) {
			if ids(row) != nil {
				changed()
			}
		},
	}
}

// topologyChanged reads the topology once after a burst of changes.
func (e *engine) topologyChanged() {
	if !e.topologyStale.Swap(true) {
		e.send(func() []nb.Unit {
			e.topologyStale.Store(false) // before reading: later changes are read again
			return e.refreshTopology()
		})
	}
}

// refreshTopology reads the topology again. If the database has none, or an invalid one, the known one stays, and
// will be written back.
func (e *engine) refreshTopology() []nb.Unit {
	c, found, err := readTopology(e.links.db, &e.topologies)
	switch {
	case errors.Is(err, ovsdb.ErrNotConnected):
		return nil // reconnected follows
	case err != nil:
		e.log.Errorf("keeping the former topology: %v", err)
		return nil
	case !found:
		return e.worlds.Units()
	}
	e.checkOwner()
	e.hostsChanged = true
	touched := e.world.Put(c)
	e.tellDeclared()
	return append(touched, e.found(topologyKind)...)
}

// found records a complete list of a kind. After the last one, all units are dirty.
func (e *engine) found(kind string) []nb.Unit {
	if !e.missing[kind] {
		return nil
	}
	delete(e.missing, kind)
	if len(e.missing) > 0 {
		return e.gateways()
	}
	e.sweep.worked(muchWork) // reading has left garbage
	return e.all()
}

// loadSavedTopology fetches the copy of the topology, for a database without one.
func (e *engine) loadSavedTopology(ctx context.Context) {
	var saved *topology.Cluster
	err := kube.Retry(ctx, func() (err error) {
		saved, err = savedTopology(ctx, e.links.cluster)
		return err
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
	if err != nil {
		return // ctx has ended
	}
	e.send(func() []nb.Unit {
		e.saved = saved
		if !e.missing[topologyKind] {
			return []nb.Unit{topology.ClusterUnit}
		}
		if saved == nil {
			e.log.Errorf("waiting: %v", ErrNoClusterRouter)
			return nil
		}
		e.log.WithField("nodes", len(saved.Nodes)).Warn("the Northbound database has no cluster router: restoring the topology from its copy")
		e.hostsChanged = true
		return append(e.world.Put(*saved), e.found(topologyKind)...)
	})
}

// reconnected makes all units dirty: changes during the disconnection are unknown.
func (e *engine) reconnected() []nb.Unit {
	e.sweep.worked(muchWork) // reading has left garbage
	return append(e.refreshTopology(), e.all()...)
}

// all lists the units with rows, desired or in the database.
func (e *engine) all() []nb.Unit {
	e.tellUnowned()
	units := e.worlds.Units()
	owners, err := e.applier.Owners()
	if err != nil {
		return units // reconnected follows
	}
	for _, u := range owners {
		if e.worlds.Owns(u) {
			units = append(units, u)
		}
	}
	return units
}

// followObjects receives the changes of Kubernetes objects until ctx ends.
func (e *engine) followObjects(ctx context.Context) {
	var all []kube.Subscription
	for _, k := range e.kinds {
		all = append(all, kube.Subscription{Kind: k, Send: func(ev kube.Event) { e.send(func() []nb.Unit { return e.take(ev) }) }})
	}
	e.links.cluster.Follow(ctx, e.log, all...)
}

// take records a change of Kubernetes objects.
func (e *engine) take(ev kube.Event) []nb.Unit {
	if ev.Kind.Name == e.nodes {
		e.hostsChanged = true
	}
	switch {
	case ev.Replace:
		touched := e.worlds.Replace(ev.Kind.Object, e.notes.overlayAll(ev.Objects))
		e.notes.prune()
		e.sweep.worked(len(ev.Objects))
		e.checkOwner()
		return append(touched, e.found(ev.Kind.Name)...)
	case ev.Gone:
		e.notes.forget(ev.Object)
		return e.worlds.Remove(ev.Object)
	}
	return e.worlds.Put(e.notes.overlay(ev.Object))
}

// prompt assigns addresses to pods and starts patches of their annotations, for these need not wait for the next
// transaction. It is the OnDirty of the loop.
func (e *engine) prompt(dirty []nb.Unit) []nb.Unit {
	if !e.writesAll() {
		if e.judges() {
			return e.watchGateways()
		}
		return nil
	}
	settled := append(e.worlds.Allocate(), e.watchGateways()...)
	e.tellMismatches(slices.Concat(dirty, settled))
	for _, u := range slices.Concat(dirty, settled) {
		delete(e.unwritten, u)
		if a, ok := e.world.Pods.Annotation(u); ok {
			if err := e.notes.want(u, a); err != nil {
				e.unwritten[u] = err
			}
		}
	}
	return settled
}

// reconcile computes the desired rows of units and returns a function to apply them. It is the Sync of the loop.
func (e *engine) reconcile(dirty []nb.Unit) func(context.Context) map[nb.Unit]error {
	want, failed := map[nb.Unit][]nb.Row{}, map[nb.Unit]error{}
	for _, u := range dirty {
		switch {
		case !e.worlds.Owns(u):
			continue
		case !e.writes(u):
			if e.plaints.has(u) {
				failed[u] = errLapsed // still
			}
			continue
		}
		rows, err := e.worlds.Rows(u)
		want[u] = rows
		if err != nil {
			failed[u] = err
		}
	}
	maps.Copy(failed, e.unwritten)
	clear(e.unwritten)
	if err := e.copyTopology(dirty); err != nil {
		failed[topology.ClusterUnit] = err
	}
	restore := e.restore
	e.restore = false
	return func(ctx context.Context) map[nb.Unit]error {
		if restore {
			if err := e.term.Restore(ctx); err != nil {
				failed[topology.ClusterUnit] = err
			}
		}
		work, refused := e.applier.Apply(ctx, want)
		e.checkTerm()
		e.work = work
		maps.Copy(failed, refused)
		return failed
	}
}

// gap is the time to gather events before the next transaction. It is the MinInterval of the loop.
func (e *engine) gap(waiting int) time.Duration {
	return e.pace.gap(time.Now(), batch{e.work.Rows, e.work.Weight, waiting}, e.world.Size())
}
