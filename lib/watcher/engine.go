package watcher

import (
	"context"
	"errors"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher/annotations"
	"ovn-k8s/lib/watcher/failures"
	"ovn-k8s/lib/watcher/garbage"
	"ovn-k8s/lib/watcher/health"
	"ovn-k8s/lib/watcher/pace"
	"ovn-k8s/lib/watcher/permission"
	"ovn-k8s/lib/watcher/records"
	"ovn-k8s/lib/watcher/registry"
	"ovn-k8s/lib/watcher/south"
)

// An event records a change in the engine's goroutine. It returns the units to compute again.
type event func() []nb.Unit

// mostUnits is the largest number of units compared at once: their rows take about 2 kB each. Related units should
// fit, such as the pods of a namespace with a new label: then their rows change in one transaction.
const mostUnits = 20000

// An engine keeps the database and the annotations equal to the World's rows and annotations. The goroutine of its
// loop owns everything except send, Loop.Status and the atomic fields.
type engine struct {
	connections *connections
	term        *ovsdb.Term // nil: it only compares
	log         *logrus.Entry
	loop        reconcile.Loop[event, nb.Unit]
	applier     Applier
	worlds      World        // of all kinds of objects: network, and the Worlds of extensions
	network     ClusterWorld // lib/desired
	notes       *annotations.Writer
	health      *health.Health // of gateways
	failures    *failures.Reporter
	running     *failures.Pods
	kinds       []kube.Kind             // of the objects to follow
	may         *permission.Permission  // to write
	fail        context.CancelCauseFunc // ends the engine for good
	restore     bool                    // the token was removed: write it again
	lapse       atomic.Pointer[lapse]   // for people; nil: none
	records     *records.Records        // in the database
	copy        *registry.Copy          // of the topology
	next        batch                   // of units computed
	unwritten   map[nb.Unit]error       // errors of annotations of dirty units
	pace        pace.Pacer
	work        Work // of the last sync
	sweep       garbage.Sweeper
	start       garbage.Start // units not compared since the start
	// foreign: others changed rows of units that are dirty now.
	foreign bool
	// topologyStale: an event to read the topology is on its way.
	topologyStale atomic.Bool
}

// A batch has the desired rows of units, and the units with errors.
type batch struct {
	want   map[nb.Unit][]nb.Row
	failed map[nb.Unit]error
}

func newBatch() batch { return batch{map[nb.Unit][]nb.Row{}, map[nb.Unit]error{}} }

// newEngine returns an engine for a World and an Applier.
func newEngine(c *connections, log *logrus.Entry, network ClusterWorld, applier Applier) *engine {
	e := &engine{
		connections: c, log: log, applier: applier, network: network, worlds: newWorlds(network, c.extensions),
		kinds: append(kube.Kinds(), moreKinds(c.extensions)...),
		next:  newBatch(), unwritten: map[nb.Unit]error{}, fail: func(error) {},
		records: records.New(c.db),
	}
	e.may = permission.New(e.kinds)
	e.sweep.Sweep = func() {
		runtime.GC() // or new objects would be spread over the garbage
		e.send(e.compact)
	}
	e.network.Put(service.ExternalIPs(c.config.ExternalIPs))
	e.network.Put(servicecidr.Ranges(c.config.ServiceCIDRs))
	e.network.Put(protected(c.config))
	e.notes = annotations.New(c.cluster, e.network, e.send)
	e.health = health.New(e.network, e.log, e.send, e.records.Led, func(node, reason, text string) { c.cluster.Warn(kube.Node(node), reason, text) })
	e.copy = registry.New(c.cluster, c.copy(), e.send, func() (topology.Cluster, bool) { return e.network.Facts().Cluster, e.may.All() })
	e.copy.KeepLost(e.log, func() map[string]bool { return e.network.Facts().Nodes })
	e.failures = failures.New(e.log, e.send, e.tell)
	e.running = failures.NewPods(e.network, e.log, e.send, e.tell)
	e.loop = reconcile.Loop[event, nb.Unit]{
		Record:  func(ev event) []nb.Unit { return ev() },
		OnDirty: e.onDirty, Compute: e.compute, Sync: e.sync, Synced: e.synced, MinInterval: e.gap, MaxWait: pace.Hold, Quiet: pace.Lull,
		MaxBatch: mostUnits, Compare: network.Compare, Related: network.Related, Resync: 10 * time.Minute, All: e.all,
	}
	return e
}

// send passes an event to the engine's goroutine. It does not block.
func (e *engine) send(ev func() []nb.Unit) { e.loop.Send(ev) }

// run runs the engine until ctx ends.
func (e *engine) run(ctx context.Context) error {
	e.log.Info("active: following the API server")
	garbage.Allow() // until all units are compared
	defer garbage.Restrict()
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
		e.send(func() []nb.Unit {
			e.foreign = true
			return []nb.Unit{u}
		})
	})()
	if e.term != nil {
		e.log.Infof("leads with term %d", e.term.Leader().Term)
		defer e.records.FollowToken(e.globalChanged)()
		e.globalChanged()
	}
	defer e.records.FollowTopology(e.topologyChanged)()
	var former []any // nothing reads it later: without it, addresses in use would be given again
	if err := kube.Retry(ctx, func() (err error) {
		former, err = e.records.Former()
		return err
	}, kube.Again(e.log, "reading the former assignments of addresses: ")); err != nil {
		return context.Cause(ctx)
	}
	for _, fact := range former {
		e.network.Put(fact)
	}
	e.send(e.refreshTopology)
	wg.Go(func() { e.loadSavedTopology(ctx) })
	wg.Go(func() { e.followObjects(ctx) })
	wg.Go(func() { e.copy.Run(ctx) })
	wg.Go(func() { e.health.Run(ctx) })
	wg.Go(func() { e.south().Run(ctx) })
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

// checkOwner ends the engine if the database is not this cluster's. Nothing is
// written from then on.
func (e *engine) checkOwner() {
	if err := e.records.CheckOwner(e.network.Facts().UID); err != nil {
		e.may.Missing[permission.Owner] = true
		e.fail(err)
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
	c, found, err := e.records.UsableTopology(e.log)
	switch {
	case errors.Is(err, ovsdb.ErrNotConnected):
		return nil // reconnected follows
	case err != nil:
		e.log.Errorf("keeping the former topology: %v", err)
		return nil
	case !found:
		if !e.may.Missing[permission.Topology] {
			e.copy.Restoring(e.log, len(e.network.Facts().Cluster.Nodes))
		}
		return e.worlds.Units()
	}
	e.copy.Present(e.records.Anew()) // reconnected is too late: events of rows may come first
	e.checkOwner()
	e.health.HostsChanged()
	touched := e.network.Put(c)
	e.health.TellDeclared()
	return append(touched, e.found(permission.Topology)...)
}

// found records a complete list of a kind. After the last one, all units are dirty.
func (e *engine) found(kind string) []nb.Unit {
	if !e.may.Find(kind) {
		return nil
	}
	if len(e.may.Missing) > 0 {
		return e.gateways()
	}
	all := e.all()
	e.start = garbage.Start(max(1, len(all)))
	return all
}

// loadSavedTopology fetches the copy of the topology, for a database without one.
func (e *engine) loadSavedTopology(ctx context.Context) {
	var saved *topology.Cluster
	err := kube.Retry(ctx, func() (err error) {
		saved, err = e.copy.Read(ctx)
		return err
	}, kube.Again(e.log, ""))
	if err != nil {
		return // ctx has ended
	}
	e.send(func() []nb.Unit {
		e.copy.Found(saved)
		if !e.may.Missing[permission.Topology] {
			return []nb.Unit{topology.ClusterUnit}
		}
		if saved == nil {
			e.log.Errorf("waiting: %v", ErrNoClusterRouter)
			e.may.Lose(permission.Topology, ErrNoClusterRouter)
			return nil
		}
		e.copy.Restoring(e.log, len(saved.Nodes))
		e.health.HostsChanged()
		return append(e.network.Put(*saved), e.found(permission.Topology)...)
	})
}

// reconnected makes all units dirty: changes during the disconnection are unknown.
func (e *engine) reconnected() []nb.Unit {
	e.sweep.Worked(garbage.Much) // reading has left garbage
	return append(e.refreshTopology(), e.all()...)
}

// all lists the units with rows, desired or in the database.
func (e *engine) all() []nb.Unit {
	e.records.WarnUnowned(e.log)
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
	slices.Sort(units)
	return slices.Compact(units) // found counts them
}

// followObjects receives the changes of Kubernetes objects until ctx ends.
func (e *engine) followObjects(ctx context.Context) {
	e.connections.cluster.Follow(ctx, e.log, e.subscriptions()...)
}

// subscriptions are those of all kinds of objects. Each kind has a line of its own in the loop: pods do not wait for
// Services that take long.
func (e *engine) subscriptions() (all []kube.Subscription) {
	for _, k := range e.kinds {
		all = append(all, kube.Subscription{Kind: k, Latest: true, Send: func(ev kube.Event) {
			e.loop.SendTo(k.Name, func() []nb.Unit { return e.recordObjects(ev) })
		}, Lost: func(err error) {
			e.loop.SendTo(k.Name, func() []nb.Unit { // before the next list
				e.may.Lose(k.Name, err)
				return nil
			})
		}})
	}
	return all
}

// recordObjects records a change of Kubernetes objects.
func (e *engine) recordObjects(ev kube.Event) []nb.Unit {
	if ev.Kind.Name == permission.Nodes {
		e.health.HostsChanged()
	}
	switch {
	case ev.Replace:
		read := 0
		touched := e.worlds.Replace(ev.Kind.Object, counted(e.notes.OverlayAll(ev.Objects), &read))
		e.notes.Prune()
		e.sweep.Worked(read)
		e.checkOwner()
		return append(touched, e.found(ev.Kind.Name)...)
	case ev.Gone:
		e.notes.Forget(ev.Object)
		return e.worlds.Remove(ev.Object)
	}
	return e.worlds.Put(e.notes.Overlay(ev.Object))
}

// counted adds the number of objects read to n.
func counted(all iter.Seq[any], n *int) iter.Seq[any] {
	return func(yield func(any) bool) {
		for o := range all {
			if *n++; !yield(o) {
				return
			}
		}
	}
}

// onDirty assigns addresses to pods and starts patches of their annotations, for these need not wait for the next
// transaction. It is the OnDirty of the loop.
//
// A transaction of a command changes rows and the record of the topology. The event of a row may come first, and with the
// former topology the row would be changed back.
func (e *engine) onDirty(dirty []nb.Unit) (settled []nb.Unit) {
	if e.foreign && e.records.Stale() {
		settled = e.refreshTopology()
	}
	e.foreign = false
	if !e.may.All() {
		if e.may.DecideGateways() {
			settled = append(settled, e.health.Watch()...)
		}
		return settled
	}
	settled = slices.Concat(settled, e.worlds.Allocate(), e.health.Watch())
	if e.term == nil || e.connections.cluster.Leads() { // else others may assign addresses by now; regained looks at all again
		e.running.Mismatches(slices.Concat(dirty, settled))
	}
	for _, u := range slices.Concat(dirty, settled) {
		delete(e.unwritten, u)
		if a, ok := e.network.Annotation(u); ok {
			if err := e.notes.Want(u, a); err != nil {
				e.unwritten[u] = err
			}
		}
	}
	return settled
}

// compute computes the desired rows of a unit for the next sync. It is the Compute of the loop.
func (e *engine) compute(u nb.Unit) {
	switch {
	case !e.worlds.Owns(u):
	case !e.may.Write(u):
		if e.failures.Has(u) {
			e.next.failed[u] = errLapsed // still
		}
	default:
		rows, err := e.worlds.Rows(u)
		e.next.want[u] = rows
		if err != nil {
			e.next.failed[u] = err
		}
	}
}

// sync returns a function to apply the rows computed. It is the Sync of the loop.
func (e *engine) sync(dirty []nb.Unit) func(context.Context) map[nb.Unit]error {
	want, failed := e.next.want, e.next.failed
	e.next = newBatch()
	for _, u := range dirty {
		if err := e.unwritten[u]; err != nil {
			failed[u] = err
			delete(e.unwritten, u)
		}
	}
	if err := e.copy.Sync(dirty); err != nil {
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

// synced reports the failed units of a transaction. It is the Synced of the loop.
func (e *engine) synced(tried []nb.Unit, failed map[nb.Unit]error) {
	e.sweep.Worked(e.work.Rows)
	if e.start.Compared(len(tried)) {
		e.sweep.Worked(garbage.Much)
	}
	e.failures.Report(tried, failed)
}

// tell writes an Event about the object behind a unit.
func (e *engine) tell(u nb.Unit, err error) {
	about := e.worlds.Object(u)
	if about == nil {
		return
	}
	reason := "NetworkNotReady"
	var problem *feature.Problem
	if errors.As(err, &problem) {
		reason = problem.Reason
	}
	e.connections.cluster.Warn(about, reason, err.Error())
}

// south follows the Southbound database.
func (e *engine) south() *south.Follower {
	return &south.Follower{
		Config: e.connections.config, Log: e.log, Send: e.send, World: e.network, Health: e.health,
		NB: e.connections.db, Services: e.records.Services, Asked: e.southAsked, Down: e.running.Disconnected,
		Connected: e.applier.SetSouth,
	}
}

// gap is the time to gather events before the next transaction. It is the MinInterval of the loop.
func (e *engine) gap(waiting int) time.Duration {
	return e.pace.Gap(time.Now(), pace.Batch{Rows: e.work.Rows, Weight: e.work.Weight, Waiting: waiting}, e.network.Size())
}
