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
// its timer.
func (f *Follower) followDatapath(sb *southbound.DB) (tell, stop func()) {
	var kernel *time.Timer
	put := func(userspace bool) []nb.Unit {
		s, _, _ := f.Services()
		s.Userspace = userspace
		return f.World.Put(s)
	}
	// The timer belongs to the owner's goroutine.
	halt := func() {
		if kernel != nil {
			kernel.Stop()
			kernel = nil
		}
	}
	tell = func() {
		f.Send(func() []nb.Unit {
			userspace, ok := sb.Userspace()
			if !ok {
				return nil // keep the last known state
			}
			if userspace {
				halt()
				return put(true)
			}
			if _, rows, byPort := f.Services(); rows == 0 || byPort == 0 {
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
			halt()
			return nil
		})
	}
}
