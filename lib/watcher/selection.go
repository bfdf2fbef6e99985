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

// kernelAfter is for how long no chassis must have the userspace datapath before Services are written for the kernel's
// alone: an ovn-controller that restarts takes its chassis out of the database for a moment.
const kernelAfter = 5 * time.Minute

// selectionBefore is the Selection by which the Services in the database were written, so that a restart writes
// nothing. Without any, it is one that works with every datapath.
func selectionBefore(db *ovsdb.DB) service.Selection {
	s := service.Selection{IPv6Source: db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ipv6_src")}
	rows, byPort := serviceRows(db)
	s.Userspace = rows == 0 || byPort > 0
	return s
}

// serviceRows counts the load balancers of Services, and those that choose endpoints by ports.
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

// followDatapath returns what tells the World whether a chassis has the userspace datapath, and what stops that.
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
				return nil // what was known last is the best there is
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
