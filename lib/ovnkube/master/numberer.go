package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodes"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/overlay/store"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher"
	"ovn-k8s/lib/watcher/failures"
	"ovn-k8s/lib/watcher/records"
)

const (
	// gather is the time between the end of a step and the next one. Nodes that come meanwhile share its transaction. A
	// single Node waits for lull only.
	gather = 50 * time.Millisecond
	lull   = 20 * time.Millisecond
	// patchers is the number of concurrent patches, patchTimeout bounds each.
	patchers     = 32
	patchTimeout = 5 * time.Second
	resync       = 10 * time.Minute
)

// An event records a change in the numberer's goroutine. It returns the units to compute again.
type event func() []nb.Unit

// A numberer gives nodes their subnets while this process leads. The goroutine of its loop owns it, except for links and
// stale. The work returned by plan runs in another one; meanwhile the loop only records events.
type numberer struct {
	links  watcher.Links
	log    *logrus.Entry
	ranges nodesubnet.Ranges
	former former

	index    *nodes.Index
	parser   topology.Parser
	router   *nbdb.LogicalRouter // with the record that the index has; nil: the database was emptied
	sync     *nbsync.Sync
	loop     reconcile.Loop[event, nb.Unit]
	failures *failures.Reporter
	blocked  map[nb.Unit]error // nodes with rows that cannot be written, for the reason
	apart    apart
	tried    []nb.Unit           // by the last work
	kept     map[nb.Unit]error   // nodes that it left as they are, for the reason
	patched  []nodes.Patch       // by the last work
	conflict *nbdb.LogicalRouter // that of the last work, if the database had another record; else nil
	late     late
	stale    atomic.Bool  // the record may have changed
	wrong    records.Once // told about it
}

// late are the units of work that came too late: the database had another record than router's.
type late struct {
	router *nbdb.LogicalRouter
	units  []nb.Unit
}

// after returns them once router has another record, and forgets them then.
func (l *late) after(router *nbdb.LogicalRouter) []nb.Unit {
	if l.router == nil || router == nil || maps.Equal(l.router.ExternalIDs, router.ExternalIDs) {
		return nil
	}
	units := l.units
	*l = late{}
	return units
}

// run works until ctx ends.
func (n *numberer) run(ctx context.Context) {
	var state membership.State
	err := kube.Retry(ctx, func() (err error) {
		state, err = read(n.links.DB)
		return err
	}, kube.Again(n.log, ""))
	if err != nil {
		return // ctx has ended
	}
	n.index = nodes.New(n.ranges, state.Topology(), state.OlderJoin())
	n.router, n.blocked, n.sync = state.Router, map[nb.Unit]error{}, &nbsync.Sync{DB: n.links.Term, Log: n.links.Log("nbsync")}
	n.loop = reconcile.Loop[event, nb.Unit]{
		Record: func(ev event) []nb.Unit { return ev() }, Sync: n.plan, Synced: n.synced,
		MinInterval: func(int) time.Duration { return gather }, MaxWait: func(nb.Unit) time.Duration { return lull }, Quiet: lull,
		Resync: resync, All: func() []nb.Unit { return n.index.All() },
	}
	n.failures = failures.New(n.log, n.send, n.tell)
	defer n.sync.Follow(n.links.DB)()
	defer n.links.DB.Handle(records.RouterHandler(func() {
		n.stale.Store(true)
		n.send(n.readRecord) // of a burst, the first one reads
	}))()
	defer n.links.OnUp(func() {
		n.stale.Store(true)
		n.send(n.reconnected)
	})()
	n.stale.Store(true) // it may have changed before the handler
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		n.links.Cluster.Follow(ctx, n.log, kube.Subscription{Kind: kube.KindOf(&corev1.Node{}), Latest: true, Send: func(ev kube.Event) {
			n.send(func() []nb.Unit { return n.record(ev) })
		}})
	})
	_ = n.loop.Run(ctx) // ends with ctx
}

func (n *numberer) send(ev func() []nb.Unit) { n.loop.Send(ev) }

// record records a change of Nodes.
func (n *numberer) record(ev kube.Event) []nb.Unit {
	if ev.Replace {
		return n.index.Replace(n.former.all(ev.Objects))
	}
	node, ok := ev.Object.(*corev1.Node)
	switch {
	case !ok:
		return nil
	case ev.Gone:
		return n.index.Remove(node.Name)
	}
	return n.index.Put(n.former.node(node))
}

// readRecord reads the record if it may have changed. If the database has none, the watcher writes the known one again.
func (n *numberer) readRecord() []nb.Unit {
	if !n.stale.Swap(false) {
		return nil
	}
	router, err := n.findRouter()
	if err != nil {
		n.stale.Store(true) // it is read again by the next try
		return nil
	}
	was := n.router
	n.router = router
	again := n.late.after(router)
	if router == nil || was != nil && maps.Equal(was.ExternalIDs, router.ExternalIDs) {
		return again
	}
	c, err := n.parser.FromRouter(router)
	if n.wrong.New(err) {
		n.log.Errorf("keys of the record are left out: %v", err)
	}
	touched := n.index.Record(c)
	if was == nil {
		return n.index.All()
	}
	return append(touched, again...)
}

// reconnected reads the record after a new connection, and tries all nodes again: some waited for it.
func (n *numberer) reconnected() []nb.Unit {
	n.readRecord()
	return n.index.All()
}

// findRouter returns the cluster router, nil if there is none.
func (n *numberer) findRouter() (*nbdb.LogicalRouter, error) {
	rows := n.links.DB.Cache()
	if rows == nil {
		return nil, ovsdb.ErrNotConnected
	}
	for _, r := range records.ClusterRouters(rows) {
		return r, nil
	}
	return nil, nil
}

// plan computes the work for dirty nodes. It is the Sync of the loop.
func (n *numberer) plan(dirty []nb.Unit) func(context.Context) map[nb.Unit]error {
	dirty = slices.Concat(dirty, n.readRecord(), n.apart.next())
	for _, u := range dirty {
		delete(n.blocked, u)
	}
	for {
		n.kept = maps.Clone(n.blocked)
		for _, u := range n.apart.later() {
			n.kept[u] = errApart
		}
		step := n.index.Next(dirty, n.kept)
		dirty = step.Units // Next returns nodes that another one affects once
		if n.apart.next() != nil && n.apart.add(n.free(step.Units)) {
			continue // or they were refused with each group
		}
		want := map[nb.Unit][]nb.Row{}
		if !step.Before.Equal(step.Record) {
			want = membership.Rows(step.Before, step.Record, topology.ClusterUnit)
		}
		if len(want) > 0 && n.router != nil && n.block(want) {
			continue
		}
		n.tried, n.patched, n.conflict = step.Units, nil, nil
		router := n.router
		return func(ctx context.Context) map[nb.Unit]error { return n.work(ctx, step, router, want) }
	}
}

// block blocks the nodes with rows that cannot be written, for example because a row of somebody else has a name, and
// reports whether there are more of them.
func (n *numberer) block(want map[nb.Unit][]nb.Row) (more bool) {
	p, err := n.sync.Plan(want)
	if err != nil {
		return false // work will fail
	}
	for u, err := range p.Failed {
		if name, ok := nodeOf(u); ok && n.blocked[topology.NodeUnit(name)] == nil {
			n.blocked[topology.NodeUnit(name)], more = err, true
		}
	}
	return more
}

// nodeOf is the node of a unit of a node, of its host or of its gateway.
func nodeOf(u nb.Unit) (string, bool) {
	for _, of := range []func(nb.Unit) (string, bool){topology.NodeOf, topology.HostOf, topology.GatewayOf} {
		if name, ok := of(u); ok {
			return name, true
		}
	}
	return "", false
}

// work commits the record and the rows of a step, and then writes the annotations.
func (n *numberer) work(ctx context.Context, step nodes.Step, router *nbdb.LogicalRouter, want map[nb.Unit][]nb.Row) map[nb.Unit]error {
	failed := maps.Clone(step.Problems)
	if err := n.commit(ctx, router, want); err != nil {
		all := n.free(step.Units)
		if refuses(err) {
			n.apart.refused(step.Changed)
			if n.apart.add(slices.DeleteFunc(all, func(u nb.Unit) bool { return slices.Contains(step.Changed, u) })); len(step.Changed) > 1 {
				err = fmt.Errorf("%w: %w", err, errApart)
			}
			all = step.Changed // the others have their annotations to come
		}
		for _, u := range all {
			failed[u] = err
		}
		return failed
	}
	n.apart.written()
	if len(want) > 0 {
		n.stale.Store(true) // the handler of the record may be late
		n.report(step)
	}
	n.patch(ctx, step.Patches, failed)
	return failed
}

// errApart is the error of a node waiting for a transaction with fewer nodes.
var errApart = fmt.Errorf("waiting for a transaction with fewer nodes: %w", failures.ErrPending)

// refuses reports whether an error of commit is about the rows: the database would take others.
func refuses(err error) bool {
	var refused *ovsdb.Refused
	return errors.As(err, &refused) && !errors.Is(err, failures.ErrPending) && !errors.Is(err, failures.ErrOutage)
}

// free are nodes, without those left as they are.
func (n *numberer) free(all []nb.Unit) []nb.Unit {
	return slices.DeleteFunc(slices.Clone(all), func(u nb.Unit) bool { return n.kept[u] != nil })
}

// commit writes rows.
func (n *numberer) commit(ctx context.Context, router *nbdb.LogicalRouter, want map[nb.Unit][]nb.Row) error {
	if len(want) == 0 {
		return nil
	}
	if router == nil {
		return fmt.Errorf("waiting for the cluster router: %w", failures.ErrPending)
	}
	_, err := store.Commit(ctx, n.sync, router, want)
	var disk *libovsdb.IOError
	switch {
	case errors.Is(err, nbsync.ErrConflict):
		n.conflict = router
		fallthrough
	case errors.Is(err, ovsdb.ErrNotConnected), errors.Is(err, ovsdb.ErrDeposed):
		n.stale.Store(true)
		return fmt.Errorf("%w: %w", err, failures.ErrPending)
	case errors.As(err, &disk):
		return fmt.Errorf("%w: %w", err, failures.ErrOutage)
	}
	return err
}

// report logs the nodes that joined and left.
func (n *numberer) report(step nodes.Step) {
	var joined, left []string
	for _, u := range step.Units {
		name, _ := topology.NodeOf(u)
		was, now := step.Before.Nodes[name], step.Record.Nodes[name]
		switch {
		case now == nil && was != nil:
			left = append(left, name)
		case !slices.Equal(was, now):
			joined = append(joined, name)
		}
	}
	for what, all := range map[string][]string{"got subnets": joined, "are gone, and their subnets free": left} {
		const most = 10
		if more := len(all) - most; more > 0 {
			all = append(all[:most:most], fmt.Sprintf("and %d more", more))
		}
		if len(all) > 0 {
			n.log.Infof("nodes %s: %s", what, strings.Join(all, ", "))
		}
	}
}

// patch writes annotations. Of failures it adds the errors.
func (n *numberer) patch(ctx context.Context, patches []nodes.Patch, failed map[nb.Unit]error) {
	var mu sync.Mutex // guards failed and n.patched
	var g errgroup.Group
	g.SetLimit(patchers)
	for _, p := range patches {
		g.Go(func() error {
			err := context.Canceled
			if n.links.Cluster.Leads() { // else this process was frozen
				ctx, cancel := context.WithTimeout(ctx, patchTimeout)
				defer cancel()
				err = n.links.Cluster.AnnotateNode(ctx, p.Name, p.UID, p.Annotations)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				n.patched = append(n.patched, p)
			case !errors.Is(err, kube.ErrGone): // its event comes
				failed[topology.NodeUnit(p.Name)] = err
			}
			return nil
		})
	}
	_ = g.Wait() // there are no errors
}

// synced records the end of work. It is the Synced of the loop.
func (n *numberer) synced(_ []nb.Unit, failed map[nb.Unit]error) {
	for _, p := range n.patched {
		n.index.Written(p)
	}
	if n.conflict != nil { // all come again together, without the pause after a failure
		n.late = late{n.conflict, append(n.late.units, n.tried...)}
		n.send(n.readRecord)
	}
	if next := n.apart.again(); next != nil {
		n.send(func() []nb.Unit { return next })
	}
	n.failures.Report(n.tried, failed)
}

// tell writes an Event about a node.
func (n *numberer) tell(u nb.Unit, err error) {
	name, ok := topology.NodeOf(u)
	if !ok {
		return
	}
	reason := "NodeNotReady"
	var problem *feature.Problem
	if errors.As(err, &problem) {
		reason = problem.Reason
	}
	n.links.Cluster.Warn(kube.Node(name), reason, err.Error())
}
