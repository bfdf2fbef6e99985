package ifstate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// temporary marks routes that exist only during the addition of another one. The number is registered neither in
// include/uapi/linux/rtnetlink.h nor in iproute2's rt_protos.
const temporary = 48

// Movable returns an error if the kernel would not accept a record again after its removal.
func (r Record) Movable() error {
	if r.Kind != Route {
		return nil
	}
	dead := false
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) { dead = dead || hop[2]&unix.RTNH_F_DEAD != 0 })
	switch {
	case r.attr(routeNextHop) != nil:
		return fmt.Errorf("route %s uses a nexthop object, which cannot be moved: delete the route first", r.Text)
	case dead:
		return fmt.Errorf("route %s has a dead nexthop, with which the kernel would not take it again: set the other interface up, or delete the route first", r.Text)
	}
	return nil
}

// addRoute adds a route. If the route to its gateway is missing since the route was created, the kernel accepts it
// only with a temporary route to the gateway.
func addRoute(c, r Record, to Interface) error {
	err := send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, c)
	if err == nil || errors.Is(err, unix.EEXIST) {
		return nil
	}
	is, failed := groupOf(r, to)
	if failed != nil {
		return failed
	}
	if slices.ContainsFunc(is, func(o Record) bool { return o.Key() == r.Key() }) {
		return nil
	}
	return withWays(c, func() error { return send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, c) })
}

// withWays sends a route while temporary routes to its gateways exist.
func withWays(c Record, repeat func() error) error {
	var ways []Record
	for _, way := range waysTo(c) {
		if send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, way) == nil {
			ways = append(ways, way)
		}
	}
	err := repeat()
	for _, way := range ways {
		err = errors.Join(err, send(unix.RTM_DELROUTE, 0, way))
	}
	return err
}

// Try returns an error if the kernel would not accept an existing record a second time, so that it could not be
// restored. Only routes are tried: their gateways may be resolved differently since their creation.
func Try(r Record, of Interface) error {
	if r.Kind != Route {
		return nil
	}
	c := outgoing(r, of, 0)
	again := func() error { return send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, c) }
	err := again()
	if err != nil && !errors.Is(err, unix.EEXIST) {
		err = withWays(c, again)
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil // the kernel has no other objection
	case err == nil:
		return Remove(r, of) // it was removed in between
	}
	return fmt.Errorf("route %s could not be added again (%w): delete it first, or what it collides with", r.Text, err)
}

// waysTo returns routes to the gateways of a route.
func waysTo(c Record) []Record {
	var ways []Record
	add := func(index, gateway []byte) {
		a, ok := netip.AddrFromSlice(gateway)
		if ok && len(index) >= 4 && !a.IsLinkLocalUnicast() {
			ways = append(ways, wayTo(a, index[:4:4], c.table()))
		}
	}
	add(c.attr(unix.RTA_OIF), gatewayOf(c.Attrs))
	hops(c.attr(unix.RTA_MULTIPATH), func(hop []byte) { add(hop[4:], gatewayOf(split(hop[sizeofHop:]))) })
	return ways
}

func wayTo(gateway netip.Addr, index []byte, table uint32) Record {
	r := Record{Kind: Route, Header: header(sizeofRoute, unix.AF_INET)}
	if gateway.Is6() {
		r.Header[0] = unix.AF_INET6
	}
	r.Header[1], r.Header[5], r.Header[6], r.Header[7] = byte(gateway.BitLen()), temporary, unix.RT_SCOPE_LINK, unix.RTN_UNICAST
	r.set(unix.RTA_DST, gateway.AsSlice())
	r.set(unix.RTA_OIF, index)
	r.set(unix.RTA_TABLE, native.AppendUint32(nil, table))
	return r
}
