package watcher

import (
	"slices"
	"strings"
	"time"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// kernelAfter is the time without a userspace datapath on any chassis before Services are written for the kernel's: a
// restarting ovn-controller removes its chassis from the database for a moment.
const kernelAfter = 5 * time.Minute

// selectionBefore is the Selection of the Services in the database, so that a restart writes nothing. Without
// Services, it works with every datapath.
func selectionBefore(db *ovsdb.DB) service.Selection {
	s := service.Selection{IPv6Source: db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ipv6_src")}
	rows, byPort := serviceRows(db)
	s.Userspace = rows == 0 || byPort > 0
	return s
}

// serviceRows counts the load balancers of Services, and those with a choice of endpoints by ports.
func serviceRows(db *ovsdb.DB) (rows, byPort int) {
	c := db.Client()
	if c == nil || c.Cache() == nil {
		return 0, 0
	}
	for _, m := range c.Cache().Table(nbdb.LoadBalancerTable).RowsShallow() {
		lb := m.(*nbdb.LoadBalancer)
		if !strings.HasPrefix(lb.ExternalIDs[names.Owner], service.UnitPrefix) {
			continue
		}
		rows++
		if slices.Contains(lb.SelectionFields, nbdb.LoadBalancerSelectionFieldsTpSrc) {
			byPort++
		}
	}
	return rows, byPort
}

// followDatapath returns a function to tell the World whether a chassis has the userspace datapath, and one to stop
// its timer.
func (e *engine) followDatapath(sb *ovsdb.DB) (tell, stop func()) {
	var kernel *time.Timer
	put := func(userspace bool) []nb.Unit {
		s := selectionBefore(e.links.db)
		s.Userspace = userspace
		return e.world.Put(s)
	}
	// The timer belongs to the engine's goroutine.
	halt := func() {
		if kernel != nil {
			kernel.Stop()
			kernel = nil
		}
	}
	tell = func() {
		e.send(func() []nb.Unit {
			userspace, ok := sb.Userspace()
			if !ok {
				return nil // keep the last known state
			}
			if userspace {
				halt()
				return put(true)
			}
			if rows, byPort := serviceRows(e.links.db); rows == 0 || byPort == 0 {
				return put(false)
			}
			if kernel == nil {
				kernel = time.AfterFunc(kernelAfter, func() {
					e.send(func() []nb.Unit {
						if userspace, ok := sb.Userspace(); kernel == nil || userspace || !ok {
							return nil
						}
						kernel = nil
						e.log.Info("no chassis has the userspace datapath: Services are written for the kernel's")
						return put(false)
					})
				})
			}
			return nil
		})
	}
	return tell, func() {
		e.send(func() []nb.Unit {
			halt()
			return nil
		})
	}
}
