// Package south follows the Southbound database: chassis, tunnels, the datapath of hosts and the ports that are down. It
// also lists the differences from the network there.
package south

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb/sbdb"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher/health"
)

// A Follower hands the contents of the Southbound database to the owner of a network.
type Follower struct {
	Config config.Config
	Log    *logrus.Entry
	Send   func(func() []nb.Unit) // runs a function in the owner's goroutine
	World  interface{ Put(fact any) []nb.Unit }
	Health *health.Health
	// Services returns the Selection of the Services in the Northbound database, and counts their load balancers and
	// those with a choice of endpoints by ports. It fails without a connection to that database.
	Services func() (s loadbalancer.Selection, rows, byPort int, err error)
	// NB is the Northbound database.
	NB interface {
		Allows(table, column, value string) bool
	}
	// Asked is called when the first answer has come, or none will.
	Asked func() []nb.Unit
	// Down is called with the ports that were down twice in a row.
	Down func(ports map[string]bool)
	// Connected is called with the database, and at the end with nil.
	Connected func(*southbound.DB)
}

// southRetry is the time between tries to reach the Southbound database.
const southRetry = 10 * time.Second

// Run follows the hosts registered in the Southbound database, until ctx ends. An ovn-controller removes
// its host there when it is stopped. Without a Southbound database, only probes count.
func (f *Follower) Run(ctx context.Context) {
	if f.Config.OVNRemote == "" {
		f.Send(f.Asked)
		return
	}
	last := ""
	for ctx.Err() == nil {
		sb, err := southbound.Open(ctx, f.Config, f.Log)
		if err == nil {
			f.Connected(sb)
			f.serve(ctx, sb)
			f.Connected(nil)
			sb.Close()
			return
		}
		f.Send(f.Asked)
		if reason := reconcile.Reason(err); reason != last && ctx.Err() == nil {
			last = reason
			f.Log.Warnf("going on without the Southbound database, to which gateways that are stopped are known: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(southRetry):
		}
	}
}

// serve hands over the registered hosts, until ctx ends.
func (f *Follower) serve(ctx context.Context, sb *southbound.DB) {
	tellDatapath, stop := f.followDatapath(sb.Userspace)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.followDown(ctx, sb) })
	tellDeclared := f.Health.FollowDeclared(sb.CMSOptions)
	sendHosts := f.onePending()
	tell := func() {
		tellDatapath()
		tellDeclared()
		sendHosts(func() []nb.Unit {
			rows, tunnels := chassisRows(sb), sb.Tunnels()
			if rows == nil || tunnels == nil {
				return nil // keep the last known state
			}
			touched := f.World.Put(facts.Tunnels(tunnels))
			touched = append(touched, f.Health.SetChassis(rows)...)
			return append(touched, f.Asked()...)
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

// chassisRows are the rows of hosts, by system-id. They are nil without a connection.
func chassisRows(sb *southbound.DB) map[string]string {
	all := sb.Cache()
	if all == nil {
		return nil
	}
	rows := map[string]string{}
	for uuid, m := range all.Table(sbdb.ChassisTable).RowsShallow() {
		rows[m.(*sbdb.Chassis).Name] = uuid
	}
	return rows
}

// onePending returns a Send for one waiting function at a time, without the later ones: it reads the state of all events.
func (f *Follower) onePending() func(func() []nb.Unit) {
	var sent atomic.Bool
	return func(run func() []nb.Unit) {
		if sent.Swap(true) {
			return
		}
		f.Send(func() []nb.Unit {
			sent.Store(false) // before reading: later changes are read again
			return run()
		})
	}
}
