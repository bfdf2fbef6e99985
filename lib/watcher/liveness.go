package watcher

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/sbdb"
	"ovn-k8s/lib/prober"
)

// watchGateways tells the prober which gateways there are, if they may be others than before.
func (e *engine) watchGateways() []nb.Unit {
	if !e.hostsChanged {
		return nil
	}
	e.hostsChanged = false
	led := sync.OnceValue(func() map[string]bool { return ledTo(e.links.db) })
	e.prober.Watch(e.world.GatewayHosts(), func(name string) bool {
		gateways := led()
		return gateways != nil && !gateways[name]
	})
	return e.world.Put(desired.Silent(e.prober.Unhealthy()))
}

// probed records which hosts of gateways do not answer, and names firewalls that do so in their place.
func (e *engine) probed() []nb.Unit {
	e.probesStale.Store(false) // before they are read
	rejected := e.prober.Rejected()
	for name, by := range rejected {
		if e.rejected[name] != by {
			e.log.WithField("gateway", name).Warnf("the firewall %s rejects probes of its host %s: only the Southbound database tells when it ends; let TCP port %d or %d through", by, e.addressesOf(name), prober.Ports()[0], prober.Ports()[1])
		}
	}
	e.rejected = rejected
	return e.judged(func() []nb.Unit { return e.world.Put(desired.Silent(e.prober.Unhealthy())) })
}

// ledTo returns the gateways to which the database has routes, nil if that is not known: one to which
// there are none was dead before the watcher started.
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

// judged says which gateways are dead or alive by what record records.
func (e *engine) judged(record func() []nb.Unit) []nb.Unit {
	before, absent := e.world.DeadGateways(), e.world.Absent()
	touched := record()
	e.warnAbsent(absent, e.world.Absent())
	now := e.world.DeadGateways()
	for _, name := range now {
		switch {
		case slices.Contains(before, name):
		case slices.Contains(e.declared, name):
			e.log.Warn(e.declaredText(name))
		case !e.world.DeclaredDown(name): // else tellDeclared follows
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
	for _, a := range e.world.GatewayHosts()[gateway] {
		all = append(all, a.String())
	}
	if all == nil {
		return "an address, of which none is known"
	}
	return strings.Join(all, " or ")
}

// southRetry is how long to wait for a Southbound database that is not there.
const southRetry = 10 * time.Second

// followChassis follows which hosts are registered in the Southbound database,
// until ctx ends. An ovn-controller that is stopped takes its host out of there.
// Without a Southbound database, only the hosts' answers count.
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

// serveSouth passes on which hosts are registered, until ctx ends.
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
				return nil // what was known last is the best there is
			}
			touched := e.world.Put(desired.Tunnels(sb.Tunnels()))
			touched = append(touched, e.judged(func() []nb.Unit { return e.world.Put(desired.Chassis(chassis)) })...)
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
