// Package defaultroute reads and follows the host's default routes.
package defaultroute

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ovn-k8s/lib/link"
)

// A Route is a next hop of a default route in the main table.
type Route struct {
	Interface string
	Via       netip.Addr
	Metric    int
}

// List returns the next hops of all default routes: IPv4 first, and in each family those first that the kernel prefers.
// Routes without a next hop, such as those of point-to-point links, and unreachable ones are left out.
func List() ([]Route, error) {
	var all []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := ofFamily(family)
		if err != nil {
			return nil, fmt.Errorf("listing the default routes: %w", err)
		}
		slices.SortStableFunc(found, func(a, b Route) int { return a.Metric - b.Metric })
		all = append(all, found...)
	}
	return all, nil
}

func ofFamily(family int) (all []Route, err error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
	for tries := 1; errors.Is(err, netlink.ErrDumpInterrupted) && tries < maxTries; tries++ {
		routes, err = netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		hops := r.MultiPath
		if len(hops) == 0 {
			hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
		}
		for _, hop := range hops {
			via, ok := netip.AddrFromSlice(hop.Gw)
			if !ok || r.Type != unix.RTN_UNICAST {
				continue
			}
			l, err := netlink.LinkByIndex(hop.LinkIndex)
			if errors.As(err, new(netlink.LinkNotFoundError)) {
				continue // the route goes with it
			}
			if err != nil {
				return nil, err
			}
			all = append(all, Route{l.Attrs().Name, via.Unmap(), r.Priority})
		}
	}
	return all, nil
}

// maxTries bounds how often a list is read again because the kernel changed it meanwhile.
const maxTries = 5

// Follow calls changed once it follows, and after each change of a default route, until ctx ends. changed must not block.
func Follow(ctx context.Context, changed func()) error {
	updates, done := make(chan netlink.RouteUpdate), make(chan struct{})
	if err := netlink.RouteSubscribe(updates, done); err != nil {
		return fmt.Errorf("following routes: %w", err)
	}
	defer link.Unsubscribe(updates, done)
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-updates:
			if !ok {
				return errors.New("following routes: the kernel ended it")
			}
			if u.Dst == nil || u.Dst.IP.IsUnspecified() {
				changed()
			}
		}
	}
}
