package watcher

import (
	"context"
	"errors"
	"time"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// A lapse is a time without the Lease.
type lapse struct {
	since time.Time
	err   error // of the last request for the Lease; nil unless it was refused
}

// errLapsed is the error of a failed unit while the Lease is lost: it is not tried.
var errLapsed = errors.New("waits for the Lease")

// writeAll writes all units until ctx ends. After it no annotation is on its way any more.
func (e *engine) writeAll(ctx context.Context) {
	e.send(e.regained)
	e.notes.run(ctx)
	e.notes.jobs.clear()
}

// regained handles the event that this watcher has the Lease.
func (e *engine) regained() []nb.Unit {
	if e.lapse.Swap(nil) != nil {
		e.log.Infof("the Lease %s/%s is held again: following the API server, term %d goes on", names.ConfigNamespace, names.WatcherLease, e.term.Leader().Term)
	}
	e.full = true
	e.notes.reset()
	return e.all()
}

// lapsed handles the event that the Lease is lost.
func (e *engine) lapsed() []nb.Unit {
	e.full = false
	l := &lapse{time.Now(), e.links.cluster.ElectionError()}
	e.lapse.Store(l)
	e.log.Warnf("the Lease %s/%s is lost (%v): writing gateways only, until it is held again or another watcher leads", names.ConfigNamespace, names.WatcherLease, l.err)
	return nil
}

// writesAll reports whether all units may be written.
func (e *engine) writesAll() bool { return e.full && len(e.missing) == 0 }

// writes reports whether a unit may be written. Units of gateways follow from the databases and from probes of their
// hosts, and do not wait until all objects of the API server are read. Units of addresses on LANs move with the
// gateways, but wait for all objects: Services have these addresses.
func (e *engine) writes(u nb.Unit) bool {
	if e.writesAll() {
		return true
	}
	_, gateway := topology.GatewayOf(u)
	_, answers := answer.Of(u)
	return e.judges() && (gateway || answers && len(e.missing) == 0)
}

// judges reports whether enough is known to decide the state of gateways.
func (e *engine) judges() bool {
	return e.asked && !e.missing[topologyKind] && !e.missing[ownerKind] && !e.missing[e.nodes]
}

// gateways lists the units of gateways if enough is known to decide their state.
func (e *engine) gateways() (units []nb.Unit) {
	if !e.judges() {
		return nil
	}
	for name := range e.world.Facts().Cluster.Gateways {
		units = append(units, topology.GatewayUnit(name))
	}
	return units
}

// southAsked handles the first answer of the Southbound database about hosts, or its absence.
func (e *engine) southAsked() []nb.Unit {
	if e.asked {
		return nil
	}
	e.asked = true
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
	case !e.full:
		e.log.Warnf("the token external_ids:%s of NB_Global was removed while the Lease is lost: gateways do not fail over until it is held again", names.Leader)
		return nil
	}
	e.log.Warnf("the token external_ids:%s of NB_Global was removed: writing it again", names.Leader)
	e.restore = true
	return []nb.Unit{topology.ClusterUnit}
}
