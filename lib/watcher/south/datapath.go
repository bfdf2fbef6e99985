package south

import (
	"time"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb/southbound"
)

// kernelAfter is the time without a userspace datapath on any chassis before Services are written for the kernel's: a
// restarting ovn-controller removes its chassis from the database for a moment.
const kernelAfter = 5 * time.Minute

// followDatapath returns a function to tell the network whether a chassis has the userspace datapath, and one to stop
// its timers.
func (f *Follower) followDatapath(sb *southbound.DB) (tell, stop func()) {
	// The timers belong to the owner's goroutine.
	var kernel, again *time.Timer
	halt := func(t **time.Timer) {
		if *t != nil {
			(*t).Stop()
			*t = nil
		}
	}
	later := func() []nb.Unit { // without the Northbound database
		halt(&again)
		again = time.AfterFunc(southRetry, tell)
		return nil
	}
	put := func(userspace bool) []nb.Unit {
		s, _, _, err := f.Services()
		if err != nil {
			return later()
		}
		s.Userspace = userspace
		return f.World.Put(s)
	}
	tell = func() {
		f.Send(func() []nb.Unit {
			userspace, ok := sb.Userspace()
			if !ok {
				return nil // keep the last known state
			}
			if userspace {
				halt(&kernel)
				return put(true)
			}
			_, rows, byPort, err := f.Services()
			if err != nil {
				return later()
			}
			if rows == 0 || byPort == 0 {
				return put(false)
			}
			if kernel == nil {
				kernel = time.AfterFunc(kernelAfter, func() {
					f.Send(func() []nb.Unit {
						if userspace, ok := sb.Userspace(); kernel == nil || userspace || !ok {
							return nil
						}
						kernel = nil
						f.Log.Info("no chassis has the userspace datapath: Services are written for the kernel's")
						return put(false)
					})
				})
			}
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
