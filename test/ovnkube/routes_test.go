package ovnkube

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
)

// routeChanges are the moments at which routes, addresses or interfaces of hosts changed. ovs-vswitchd, as userspace datapath,
// then forgets its copy of the host's routes and reads all anew (route_table_reset in its route-table.c): a packet to another
// host that it looks up meanwhile is dropped, and so are the next ones until it looks again.
type routeChanges struct {
	mu sync.Mutex
	at []time.Time
}

// followRoutes follows the changes of all hosts with the userspace datapath until the end of the test. Those with the kernel's
// have none that excuse a loss.
func (s *sessions) followRoutes() *routeChanges {
	s.Helper()
	r := &routeChanges{}
	if host.Datapath() != host.Userspace {
		return r
	}
	done := make(chan struct{})
	s.Cleanup(func() { close(done) })
	for _, n := range s.Nodes {
		routes, addresses, links := make(chan netlink.RouteUpdate), make(chan netlink.AddrUpdate), make(chan netlink.LinkUpdate)
		s.must(probe.In(n.Netns(), func() error {
			return errors.Join(netlink.RouteSubscribe(routes, done), netlink.AddrSubscribe(addresses, done), netlink.LinkSubscribe(links, done))
		}))
		go follow(r, routes)
		go follow(r, addresses)
		go follow(r, links)
	}
	return r
}

// follow notes the time of each update until the channel is closed.
func follow[update any](r *routeChanges, updates <-chan update) {
	for range updates {
		r.mu.Lock()
		r.at = append(r.at, time.Now())
		r.mu.Unlock()
	}
}

// near reports whether a packet was sent so close to a change that it may have met it.
func (r *routeChanges) near(sent time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.at, func(change time.Time) bool {
		after := sent.Sub(change)
		return -limit.Of(50*time.Millisecond) < after && after < limit.Of(100*time.Millisecond)
	})
}
