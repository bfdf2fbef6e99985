package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/failures"
)

// A lapse is a time without the Lease.
type lapse struct {
	since time.Time
	err   error // why it was released, or lost
}

// String describes it.
func (l *lapse) String() string {
	return fmt.Sprintf("lost since %s (%v): only gateways are written", l.since.UTC().Format(time.RFC3339), l.err)
}

// errUnrenewed is why the Lease is lost if the last request for it was not refused.
var errUnrenewed = errors.New("not renewed in time, as after a pause of this process or its host; or another watcher took it")

// errLapsed is the error of a failed unit while the Lease is lost: it is not tried.
var errLapsed = failures.Mark(errors.New("waits for the Lease"), ErrPending)

// writeAll writes all units until ctx ends. After it no annotation is on its way any more.
func (e *engine) writeAll(ctx context.Context) {
	e.send(e.regained)
	e.notes.Run(ctx)
}

// regained handles the event that this watcher has the Lease.
func (e *engine) regained() []nb.Unit {
	if e.lapse.Swap(nil) != nil {
		e.log.Infof("the Lease %s is held again: following the API server, term %d goes on", e.connections.lease(), e.term.Leader().Term)
	}
	e.may.Full = true
	e.notes.Reset()
	return e.all()
}

// lapsed handles the event that the Lease is lost, or was released because of an error, which is logged elsewhere.
func (e *engine) lapsed(released error) []nb.Unit {
	e.may.Full = false
	l := &lapse{time.Now(), cmp.Or(released, e.connections.cluster.ElectionError(), errUnrenewed)}
	e.lapse.Store(l)
	if released == nil {
		e.log.Warnf("the Lease %s is lost (%v): writing gateways only, until it is held again or another watcher leads", e.connections.lease(), l.err)
	}
	return nil
}

// gateways lists the units of gateways if enough is known to decide their state.
func (e *engine) gateways() (units []nb.Unit) {
	if !e.may.DecideGateways() {
		return nil
	}
	for name := range e.network.Facts().Cluster.Gateways {
		units = append(units, topology.GatewayUnit(name))
	}
	return units
}

// southAsked handles the first answer of the Southbound database about hosts, or its absence.
func (e *engine) southAsked() []nb.Unit {
	if e.may.Asked {
		return nil
	}
	e.may.Asked = true
	return e.gateways()
}

// globalChanged ends the engine if another watcher leads, and writes a removed token again.
func (e *engine) globalChanged() {
	if e.checkTerm(); e.term.Removed() {
		e.send(e.tokenRemoved)
	}
}

// tokenRemoved handles a database without the token.
func (e *engine) tokenRemoved() []nb.Unit {
	switch {
	case !e.term.Removed():
		return nil
	case !e.may.Full:
		e.log.Warnf("the token external_ids:%s of NB_Global was removed while the Lease is lost: gateways do not fail over until it is held again", names.Leader)
		return nil
	}
	e.log.Warnf("the token external_ids:%s of NB_Global was removed: writing it again", names.Leader)
	e.restore = true
	return []nb.Unit{topology.ClusterUnit}
}
