package ifstate

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Way is a Route record for use in configuration files. Automatic routes, routes from DHCP and router advertisements,
// routes of other interfaces, and routes other than unicast have none.
func (r Record) Way() (w Way, ok bool) {
	if r.Kind != Route || r.Automatic() || r.Dynamic() || r.Header[7] != unix.RTN_UNICAST || !r.Mentions("") {
		return Way{}, false
	}
	a, there := netip.AddrFromSlice(r.attr(unix.RTA_DST))
	if !there {
		a = netip.IPv4Unspecified()
		if r.Is6() {
			a = netip.IPv6Unspecified()
		}
	}
	w = Way{To: netip.PrefixFrom(a, int(r.Header[1])), Via: r.Gateways(), Metric: r.Metric(), Table: r.table(), Whole: r.simple()}
	w.Source, _ = netip.AddrFromSlice(r.attr(unix.RTA_PREFSRC))
	w.OnLink = native.Uint32(r.Header[8:])&unix.RTNH_F_ONLINK != 0
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) { w.OnLink = w.OnLink || hop[2]&unix.RTNH_F_ONLINK != 0 })
	for _, m := range split(r.attr(unix.RTA_METRICS)) {
		if m.Type == unix.RTAX_MTU && len(m.Value) == 4 {
			w.MTU = native.Uint32(m.Value)
		} else {
			w.Whole = false
		}
	}
	return w, true
}

// wayAttrs are the attributes of routes in a Way, or added by the kernel.
var wayAttrs = []uint16{
	unix.RTA_DST, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_TABLE, unix.RTA_PRIORITY, unix.RTA_PREFSRC, unix.RTA_MULTIPATH, unix.RTA_METRICS,
	unix.RTA_CACHEINFO, unix.RTA_PREF,
}

// simple reports whether a Route record has no attributes beside wayAttrs, neither a source prefix nor a TOS, and next
// hops of one weight over its own interface.
func (r Record) simple() bool {
	other := func(a Attr) bool {
		return !slices.Contains(wayAttrs, a.Type) || a.Type == unix.RTA_PREF && !slices.Equal(a.Value, []byte{0})
	}
	is := r.Header[2] == 0 && r.Header[3] == 0 && !slices.ContainsFunc(r.Attrs, other)
	weights := map[byte]bool{}
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) {
		weights[hop[3]] = true
		is = is && native.Uint32(hop[4:]) == 0 && !slices.ContainsFunc(split(hop[sizeofHop:]), other)
	})
	return is && len(weights) < 2
}

// Dynamic reports whether a Route record comes from DHCP or a router advertisement, and will be added again by these.
func (r Record) Dynamic() bool {
	return r.Kind == Route && (r.Learned != 0 || r.Header[5] == unix.RTPROT_RA || r.Header[5] == unix.RTPROT_DHCP)
}

// A Way is a summary of a route.
type Way struct {
	To            netip.Prefix
	Via           []netip.Addr // next hops; none: directly connected
	OnLink        bool         // the next hops are in no subnet of the interface
	Source        netip.Addr   // the preferred source address, the zero Addr if there is none
	MTU           uint32       // 0: the interface's
	Metric, Table uint32
	// Whole: the route has no other attributes.
	Whole bool
}

// Mixed reports whether a next hop is of the other family than the destination.
func (w Way) Mixed() bool {
	return slices.ContainsFunc(w.Via, func(a netip.Addr) bool { return a.Is4() != w.To.Addr().Is4() })
}

// Main is the default table of a Way.
const Main = unix.RT_TABLE_MAIN
