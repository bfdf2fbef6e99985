package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/watcher/candidate"
	"ovn-k8s/lib/watcher/otherlease"
	"ovn-k8s/lib/watcher/records"
)

// A tenure is the time of this watcher as the leader: an engine and its term in the database. It outlives the Lease
// until another watcher has the Lease or the term. Without the Lease the engine writes the units of gateways only: so
// gateways fail over while the API server cannot be reached, and possibly stale objects change nothing.
type tenure struct {
	ctx         context.Context         // of the configuration
	cancel      context.CancelCauseFunc // ends it
	w           *Watcher
	connections *connections
	log         *logrus.Entry

	mu      sync.Mutex // guards running
	running *running   // nil: none, or it has ended: its World takes much memory
}

// A running is an engine, running or ended.
type running struct {
	engine *engine
	stop   context.CancelCauseFunc
	ended  chan struct{} // closed after the end, with err
	err    error
}

func (r *running) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// lead writes all units until held, the context of the Lease, is done. It returns the engine's error if the engine
// ends, and a candidate.Lost if the database is away for long.
func (t *tenure) lead(held context.Context) error {
	held, stop := t.connections.state.Within(held)
	defer stop()
	r, err := t.resume(held)
	if err != nil {
		return cmp.Or(candidate.Ended(held), err)
	}
	held, cancel := context.WithCancel(held)
	defer cancel()
	go func() {
		select {
		case <-r.ended:
			cancel()
		case <-held.Done():
		}
	}()
	wait := t.accompany(held, r.engine.term)
	r.engine.writeAll(held)
	wait()
	if t.ctx.Err() != nil {
		<-r.ended // until then the Lease is not given up
	}
	if r.hasEnded() {
		return r.err
	}
	err = candidate.Ended(held)
	r.engine.send(func() []nb.Unit { return r.engine.lapsed(err) })
	return cmp.Or(err, held.Err())
}

// resume returns the engine of a term still valid, or else a new one.
func (t *tenure) resume(ctx context.Context) (*running, error) {
	t.mu.Lock()
	r := t.running
	t.mu.Unlock()
	if r != nil && !r.hasEnded() {
		ours, err := t.confirm(ctx, r.engine.term)
		if err != nil {
			return nil, err
		}
		if ours && !r.hasEnded() {
			return r, nil
		}
		r.stop(ovsdb.ErrDeposed)
		<-r.ended
	}
	if err := t.awaitOtherLease(ctx); err != nil {
		return nil, err
	}
	term, err := t.begin(ctx)
	if err == nil {
		err = t.prepare(ctx, term)
	}
	if err != nil {
		return nil, err
	}
	return t.start(term), nil
}

// confirm reports whether a term is still valid: no other watcher has led since.
func (t *tenure) confirm(ctx context.Context, term *ovsdb.Term) (ours bool, err error) {
	err = kube.Retry(ctx, func() (err error) {
		ours, err = term.Confirm(ctx)
		return err
	}, kube.Again(t.log, ""))
	return ours, err
}

// awaitOtherLease waits while the leader has another Lease: two watchers of different namespaces would depose each other
// in turn.
func (t *tenure) awaitOtherLease(ctx context.Context) error {
	c := t.connections
	wait := otherlease.Wait{
		Log: t.log, Own: c.lease(), Identity: c.process.String(), Dead: c.process.Dead, Leader: c.db.Leader, Holder: c.cluster.Holder,
	}
	return wait.Run(ctx)
}

// begin begins a term, if the database is this cluster's.
func (t *tenure) begin(ctx context.Context) (term *ovsdb.Term, err error) {
	var other error
	err = kube.Retry(ctx, func() error {
		uid, err := t.connections.cluster.UID(ctx)
		if err != nil {
			return err
		}
		if other = records.New(t.connections.db).CheckOwner(uid); other != nil {
			return nil // and the token is not written either
		}
		term, err = t.connections.db.Lead(ctx, t.connections.process.String(), t.connections.lease().String(), t.connections.cluster.Leads)
		return err
	}, kube.Again(t.log, ""))
	return term, cmp.Or(other, err)
}

// start starts an engine.
func (t *tenure) start(term *ovsdb.Term) *running {
	e := t.w.newEngine(t.connections, term)
	e.term = term
	ctx, stop := context.WithCancelCause(t.ctx)
	r := &running{engine: e, stop: stop, ended: make(chan struct{})}
	t.mu.Lock()
	t.running = r
	t.mu.Unlock()
	t.w.engine.Store(e)
	go func() {
		defer close(r.ended)
		r.err = e.run(ctx)
		stop(nil)
		t.w.engine.Store(nil)
		if errors.As(r.err, new(records.Foreign)) {
			t.cancel(r.err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.running = nil
	}()
	return r
}

// superseded ends an engine without the Lease when another process has it. A watcher of an older version does not
// take the term.
func (t *tenure) superseded(holder string) {
	t.mu.Lock()
	r := t.running
	t.mu.Unlock()
	if r != nil && !t.connections.cluster.Leads() {
		r.stop(fmt.Errorf("%w: %q has the Lease %s", ovsdb.ErrDeposed, holder, t.connections.lease()))
	}
}

// end waits for the engine's end. t.ctx is done.
func (t *tenure) end() {
	t.mu.Lock()
	r := t.running
	t.mu.Unlock()
	if r != nil {
		<-r.ended
	}
}
