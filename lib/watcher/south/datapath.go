package south

import (
	"time"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// kernelAfter is the time without a userspace datapath on any chassis before Services are written for the kernel's: a
// restarting ovn-controller removes its chassis from the database for a moment.
const kernelAfter = 5 * time.Minute

// followDatapath returns a function to tell the network whether a chassis has the userspace datapath, and one to stop
// its timers. read returns that, ok is false if it is unknown. A burst of calls reads once, and load balancers are counted
// only if the answer or the schema of the Northbound database has changed: 10 000 of them take 10 ms.
func (f *Follower) followDatapath(read func() (userspace, ok bool)) (tell, stop func()) {
	// All of these belong to the owner's goroutine.
	var kernel, again *time.Timer
	var told *loadbalancer.Selection // the one in the World, as far as known
	halt := func(t **time.Timer) {
		if *t != nil {
			(*t).Stop()
			*t = nil
		}
	}
	later := func() []nb.Unit { // without the Northbound database
		told = nil
		halt(&again)
		again = time.AfterFunc(southRetry, tell)
		return nil
	}
	put := func(s loadbalancer.Selection, userspace bool) []nb.Unit {
		s.Userspace = userspace
		told = &s
		return f.World.Put(s)
	}
	putKernel := func() []nb.Unit {
		if kernel == nil {
			return nil
		}
		kernel = nil
		if userspace, ok := read(); userspace || !ok {
			return nil // the next call of tell decides
		}
		s, _, _, err := f.Services()
		if err != nil {
			return later()
		}
		f.Log.Info("no chassis has the userspace datapath: Services are written for the kernel's")
		return put(s, false)
	}
	send := f.onePending()
	tell = func() {
		send(func() []nb.Unit {
			userspace, ok := read()
			if !ok {
				return nil // keep the last known state
			}
			if userspace {
				halt(&kernel)
			}
			now := loadbalancer.Selection{IPv6Source: f.NB.Allows(nbdb.LoadBalancerTable, "selection_fields", "ipv6_src"), Userspace: userspace}
			if kernel != nil || told != nil && *told == now {
				return nil
			}
			s, rows, byPort, err := f.Services()
			switch {
			case err != nil:
				return later()
			case userspace, rows == 0, byPort == 0:
				return put(s, userspace)
			}
			kernel = time.AfterFunc(kernelAfter, func() { f.Send(putKernel) })
			return nil
		})
	}
	return tell, func() {
		f.Send(func() []nb.Unit {
			halt(&kernel)
			halt(&again)
			return nil
		})
	}
}
