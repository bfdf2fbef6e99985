package watcher

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/sbdb"
	"ovn-k8s/lib/prober"
)

// watchGateways sets the gateways of the prober, if they may have changed.
func (e *engine) watchGateways() []nb.Unit {
	if !e.hostsChanged {
		return nil
	}
	e.hostsChanged = false
	led := sync.OnceValue(func() map[string]bool { return ledTo(e.links.db) })
	e.prober.Watch(e.world.Facts().GatewayHosts(), func(name string) bool {
		gateways := led()
		return gateways != nil && !gateways[name]
	})
	return e.world.Put(facts.Silent(e.prober.Unhealthy()))
}

// probed records the unhealthy hosts of gateways, and reports firewalls that reject the probes.
func (e *engine) probed() []nb.Unit {
	e.probesStale.Store(false) // before reading
	rejected := e.prober.Rejected()
	for name, by := range rejected {
		if e.rejected[name] != by {
			e.log.WithField("gateway", name).Warnf("the firewall %s rejects probes of its host %s: only the Southbound database tells when it ends; let TCP port %d or %d through", by, e.addressesOf(name), prober.Ports()[0], prober.Ports()[1])
		}
	}
	e.rejected = rejected
	return e.judged(func() []nb.Unit { return e.world.Put(facts.Silent(e.prober.Unhealthy())) })
}

// ledTo returns the gateways with routes to them in the database, nil if unknown. A gateway without routes was down
// before the watcher started.
func ledTo(db *ovsdb.DB) map[string]bool {
	c := db.Client()
	if c == nil {
		return nil
	}
	rows := c.Cache()
	if rows == nil {
		return nil
	}
	led := map[string]bool{}
	for _, table := range []string{nbdb.LogicalRouterStaticRouteTable, nbdb.LogicalRouterPolicyTable} {
		for _, m := range rows.Table(table).RowsShallow() {
			ids := m.(interface{ GetExternalIDs() map[string]string }).GetExternalIDs()
			if name, ok := topology.GatewayOf(nb.Unit(ids[names.Owner])); ok && strings.HasPrefix(ids[names.ID], name+"/") {
				led[name] = true
			}
		}
	}
	return led
}

// judged calls record, and reports the gateways with another state afterwards.
func (e *engine) judged(record func() []nb.Unit) []nb.Unit {
	before, absent := e.world.Facts().DeadGateways(), e.world.Facts().Absent()
	touched := record()
	e.warnAbsent(absent, e.world.Facts().Absent())
	now := e.world.Facts().DeadGateways()
	for _, name := range now {
		switch {
		case slices.Contains(before, name):
		case slices.Contains(e.declared, name):
			e.log.Warn(e.declaredText(name))
		case !e.world.Facts().DeclaredDown(name): // else tellDeclared follows
			e.log.WithField("gateway", name).Warnf("is dead: nothing leads there until its host is registered in the Southbound database and answers at %s, TCP port %d or %d", e.addressesOf(name), prober.Ports()[0], prober.Ports()[1])
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			e.log.WithField("gateway", name).Info("is alive again")
		}
	}
	return touched
}

// addressesOf are the addresses of a gateway's host, for people.
func (e *engine) addressesOf(gateway string) string {
	var all []string
	for _, a := range e.world.Facts().GatewayHosts()[gateway] {
		all = append(all, a.String())
	}
	if all == nil {
		return "an address, of which none is known"
	}
	return strings.Join(all, " or ")
}

// southRetry is the time between tries to reach the Southbound database.
const southRetry = 10 * time.Second

// followChassis follows the hosts registered in the Southbound database, until ctx ends. An ovn-controller removes
// its host there when it is stopped. Without a Southbound database, only probes count.
func (e *engine) followChassis(ctx context.Context) {
	if e.links.config.OVNRemote == "" {
		e.send(e.southAsked)
		return
	}
	said := ""
	for ctx.Err() == nil {
		sb, err := ovsdb.OpenSouth(ctx, e.links.config, e.log)
		if err == nil {
			e.serveSouth(ctx, sb)
			sb.Close()
			return
		}
		e.send(e.southAsked)
		if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			e.log.Warnf("going on without the Southbound database, to which gateways that are stopped are known: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(southRetry):
		}
	}
}

// serveSouth sends the registered hosts to the engine, until ctx ends.
func (e *engine) serveSouth(ctx context.Context, sb *ovsdb.DB) {
	tellDatapath, stop := e.followDatapath(sb)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { e.followDown(ctx, sb) })
	tellDeclared := e.followDeclared(sb)
	tell := func() {
		tellDatapath()
		tellDeclared()
		e.send(func() []nb.Unit {
			chassis, ok := sb.Chassis()
			if !ok {
				return nil // keep the last known state
			}
			touched := e.world.Put(facts.Tunnels(sb.Tunnels()))
			touched = append(touched, e.judged(func() []nb.Unit { return e.world.Put(facts.Registered(chassis)) })...)
			return append(touched, e.southAsked()...)
		})
	}
	defer sb.Handle(&cache.EventHandlerFuncs{
		AddFunc: func(string, model.Model) { tell() },
		UpdateFunc: func(table string, _, _ model.Model) {
			if table == sbdb.EncapTable {
				tell()
				return
			}
			tellDatapath()
			tellDeclared()
		},
		DeleteFunc: func(string, model.Model) { tell() },
	})()
	tell()
	_ = sb.Run(ctx, tell, nil) // ends with ctx
}
