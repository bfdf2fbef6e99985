package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/defaultroute"
	"ovn-k8s/lib/link/notify"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/settings"
)

const (
	// resync is the time between passes without an event: what the kernel does not announce is repaired after it.
	resync = 20 * time.Second
	// rest is the time between two passes.
	rest = 200 * time.Millisecond
	// passTimeout bounds a pass.
	passTimeout = 2 * time.Minute
)

// hostKey is the only key of the loop.
const hostKey = "host"

// An event is a change for the engine's goroutine to record. It returns the keys touched.
type event func() []string

// An engine keeps the host with one configuration.
type engine struct {
	*Node
	log     *logrus.Entry
	session settings.Session
	options options.Options
	sw      *vswitch.Switch
	cluster *kube.Cluster
	loop    reconcile.Loop[event, string]
	ready   func()

	// node is the Node, nil if it is unknown; listed means that the API server has answered, and lost is why it does not now.
	// They belong to the loop's goroutine.
	node   *corev1.Node
	listed bool
	lost   error

	serving   atomic.Bool           // the CNI server
	unserved  atomic.Pointer[error] // why the CNI server does not serve, nil: it has not failed
	followPod atomic.Bool           // pods keep the subnets as they were: a pass follows when one is gone

	pass pass // belongs to the work of the loop
}

func newEngine(n *Node, s settings.Session, cluster *kube.Cluster) *engine {
	e := &engine{Node: n, log: n.log(), session: s, options: options.Of(s.Config), sw: s.Switch, cluster: cluster}
	e.pass = pass{engine: e, warned: map[string]bool{}, told: map[string]bool{}, failing: map[string]bool{}}
	e.loop = reconcile.Loop[event, string]{
		Record: func(ev event) []string { return ev() },
		Sync:   e.sync, Synced: e.synced,
		MinInterval: func(int) time.Duration { return rest },
		Resync:      resync, All: func() []string { return []string{hostKey} },
	}
	return e
}

// touch causes a pass.
func (e *engine) touch() { e.loop.Send(func() []string { return []string{hostKey} }) }

// run keeps the host until ctx ends.
func (e *engine) run(ctx context.Context, ready func()) error {
	e.ready = sync.OnceFunc(ready)
	if err := e.disableAfterBoot(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.Server != nil {
		wg.Go(func() { e.serveCNI(ctx) })
	}
	changed := make(chan struct{}, 1)
	defer e.sw.OnChange(func() { poke(changed) })()
	wg.Go(func() { e.followSwitch(ctx, changed) })
	wg.Go(func() { e.follow(ctx, addresses()) })
	wg.Go(func() { e.follow(ctx, defaultroute.Follow) })
	wg.Go(func() { e.follow(ctx, notify.Forwarding) })
	wg.Go(func() {
		e.cluster.Follow(ctx, e.log, kube.Subscription{Kind: kube.KindOf(&corev1.Node{}), Node: e.name(), Send: e.record, Lost: e.setLost})
	})
	e.touch()
	return e.loop.Run(ctx)
}

// serveCNI runs the CNI server until ctx ends. After a failure it tries again, and a pass reports the reason.
func (e *engine) serveCNI(ctx context.Context) {
	_ = kube.Retry(ctx, func() error { return e.Server(ctx, e.session, e.cluster, e.served) }, func(err error) {
		e.serving.Store(false)
		e.unserved.Store(&err)
		e.touch()
	})
}

// served records that the CNI server is ready.
func (e *engine) served() {
	e.unserved.Store(nil)
	e.serving.Store(true)
	e.touch()
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// record records the Node.
func (e *engine) record(ev kube.Event) {
	e.loop.Send(func() []string {
		before, same := e.node, e.listed && e.lost == nil
		switch {
		case ev.Replace:
			e.node, e.listed, e.lost = nil, true, nil
			for o := range ev.Objects {
				e.node, _ = o.(*corev1.Node)
			}
		case ev.Gone:
			e.node = nil
		default:
			e.node, _ = ev.Object.(*corev1.Node)
		}
		if same && sameNode(before, e.node) {
			return nil
		}
		return []string{hostKey}
	})
}

// setLost records why the Node cannot be followed.
func (e *engine) setLost(err error) {
	e.loop.Send(func() []string {
		before := e.lost
		if e.lost = err; before != nil && reconcile.Reason(before) == reconcile.Reason(err) {
			return nil
		}
		return []string{hostKey}
	})
}

// sameNode reports whether a pass sees no difference between two states of the Node.
func sameNode(a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

// follow causes a pass after each change, until ctx ends, and at the start of each subscription, for changes before it.
func (e *engine) follow(ctx context.Context, follow func(context.Context, func()) error) {
	_ = kube.Retry(ctx, func() error { return follow(ctx, e.touch) }, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// addresses returns a function to follow addresses of the host. Pods have theirs in other namespaces.
func addresses() func(context.Context, func()) error {
	var last map[string][]netip.Prefix
	return func(ctx context.Context, changed func()) error {
		return link.FollowAddresses(ctx, func() error {
			now, err := link.Addresses()
			if err != nil || !maps.EqualFunc(now, last, slices.Equal) {
				last = now
				changed()
			}
			return nil // the pass reads them, too
		})
	}
}

// A switchState is what a pass looks at in Open vSwitch's database.
type switchState struct {
	interfaces  []vswitch.Interface
	externalIDs map[string]string
}

// followSwitch causes a pass after each change in Open vSwitch's database that is not about pods, until ctx ends.
func (e *engine) followSwitch(ctx context.Context, changed <-chan struct{}) {
	last := switchState{}
	reconcile.Paced(ctx, changed, rest, func() {
		now, err := e.readSwitch(ctx)
		if err != nil || !reflect.DeepEqual(now, last) {
			e.touch()
		}
		last = now
	})
}

// readSwitch reads the database.
func (e *engine) readSwitch(ctx context.Context) (switchState, error) {
	pods := e.followPod.Load()
	some, err := e.sw.InterfacesWhere(ctx, func(i vswitch.Interface) bool { return ofPasses(i, pods) })
	if err != nil {
		return switchState{}, err
	}
	return switchState{some, e.sw.ExternalIDs()}, nil
}

// ofPasses reports whether an interface is relevant to a pass. Each host joining or leaving the cluster changes a tunnel.
func ofPasses(i vswitch.Interface, pods bool) bool {
	return !i.IsTunnel() && (i.ExternalIDs[names.Sandbox] == "" || pods)
}

// sync returns a pass with the present inputs: it is the Sync of the loop.
func (e *engine) sync([]string) func(context.Context) map[string]error {
	in := input{node: e.node, listed: e.listed, lost: e.lost, serving: e.serving.Load(), unserved: e.unserved.Load()}
	return func(ctx context.Context) map[string]error {
		ctx, cancel := context.WithTimeoutCause(ctx, passTimeout, fmt.Errorf("not done within %v", passTimeout))
		defer cancel()
		err := e.pass.run(ctx, in)
		e.pass.last = err
		if err != nil && !errors.As(err, new(waiting)) {
			return map[string]error{hostKey: err}
		}
		return nil
	}
}

// synced reports the result of a pass, once until it changes: it is the Synced of the loop.
func (e *engine) synced([]string, map[string]error) {
	defer e.ready()
	err, before := e.pass.last, e.pass.reported
	if errors.Is(err, context.Canceled) {
		return
	}
	now := settings.Serving
	if err != nil {
		now = reconcile.Reason(err)
	}
	if now == before {
		return
	}
	e.pass.reported = now
	e.ready() // before the status, which it sets, too
	switch {
	case err == nil:
		e.log.Infof("node %s: host is complete", e.name())
	case errors.As(err, new(waiting)):
		e.log.Info(now)
	default:
		e.log.Warnf("trying again: %v", err)
	}
	if e.Status != nil {
		e.Status(now)
	}
}
