package ifstate

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Prefix is the address of an Address record with its prefix length, otherwise the zero Prefix.
func (r Record) Prefix() netip.Prefix {
	if r.Kind != Address {
		return netip.Prefix{}
	}
	local := r.attr(unix.IFA_LOCAL)
	if local == nil {
		local = r.attr(unix.IFA_ADDRESS)
	}
	a, _ := netip.AddrFromSlice(local)
	return netip.PrefixFrom(a, int(r.Header[1]))
}

// Lasts reports whether an address has an infinite lifetime, unlike those from DHCP or router advertisements.
func (r Record) Lasts() bool {
	info := r.attr(unix.IFA_CACHEINFO)
	return len(info) < 8 || native.Uint32(info[4:]) == forever
}

// Gateways returns the next hops of a Route record over its own interface.
func (r Record) Gateways() []netip.Addr {
	if r.Kind != Route {
		return nil
	}
	var all []netip.Addr
	add := func(index, gateway []byte) {
		a, ok := netip.AddrFromSlice(gateway)
		if ok && len(index) >= 4 && native.Uint32(index) == 0 {
			all = append(all, a)
		}
	}
	add(r.attr(unix.RTA_OIF), gatewayOf(r.Attrs))
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) { add(hop[4:], gatewayOf(split(hop[sizeofHop:]))) })
	return all
}

// gatewayOf is RTA_GATEWAY or the address in RTA_VIA, a gateway of the other family.
func gatewayOf(attrs []Attr) []byte {
	for _, a := range attrs {
		switch {
		case a.Type == unix.RTA_GATEWAY:
			return a.Value
		case a.Type == unix.RTA_VIA && len(a.Value) > 2:
			return a.Value[2:]
		}
	}
	return nil
}

// Default reports whether a Route record is a default route.
func (r Record) Default() bool { return r.Kind == Route && r.Header[1] == 0 }

// table is the routing table of a Route or Rule record.
func (r Record) table() uint32 {
	kind := uint16(unix.RTA_TABLE) // FRA_TABLE is the same
	if v := r.attr(kind); len(v) == 4 {
		return native.Uint32(v)
	}
	return uint32(r.Header[4])
}

// Metric is the RTA_PRIORITY of a route, or the FRA_PRIORITY of a rule; both have the same number.
func (r Record) Metric() uint32 {
	if v := r.attr(unix.RTA_PRIORITY); len(v) == 4 {
		return native.Uint32(v)
	}
	return 0
}

// describe sets Text.
func (r *Record) describe() {
	switch r.Kind {
	case Address:
		r.Text = r.Prefix().String()
	case Neighbour:
		a, _ := netip.AddrFromSlice(r.attr(unix.NDA_DST))
		r.Text = a.String()
		if mac := r.attr(unix.NDA_LLADDR); len(mac) == 6 {
			r.Text += fmt.Sprintf(" lladdr %02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5])
		} else {
			r.Text = "proxy " + r.Text
		}
	case Route:
		r.Text = r.routeText()
	case Rule:
		r.Text = r.ruleText()
	}
}

func (r Record) routeText() string {
	words := []string{destination(r.attr(unix.RTA_DST), r.Header[1], r.Is6())}
	if gw := gatewayOf(r.Attrs); gw != nil {
		a, _ := netip.AddrFromSlice(gw)
		words = append(words, "via", a.String())
	}
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) {
		a, _ := netip.AddrFromSlice(gatewayOf(split(hop[sizeofHop:])))
		words = append(words, "nexthop", "via", a.String())
	})
	if src, ok := netip.AddrFromSlice(r.attr(unix.RTA_PREFSRC)); ok {
		words = append(words, "src", src.String())
	}
	if m := r.Metric(); m != 0 {
		words = append(words, fmt.Sprint("metric ", m))
	}
	if t := r.table(); t != unix.RT_TABLE_MAIN {
		words = append(words, fmt.Sprint("table ", t))
	}
	return strings.Join(words, " ")
}

func destination(dst []byte, bits byte, is6 bool) string {
	if bits == 0 {
		if is6 {
			return "::/0"
		}
		return "default"
	}
	a, _ := netip.AddrFromSlice(dst)
	return netip.PrefixFrom(a, int(bits)).String()
}

func (r Record) ruleText() string {
	words := []string{fmt.Sprint("pref ", r.Metric())}
	if in := text(r.attr(ruleIn)); in != "" {
		words = append(words, "iif", in)
	}
	if out := text(r.attr(ruleOut)); out != "" {
		words = append(words, "oif", out)
	}
	return strings.Join(append(words, fmt.Sprint("lookup ", r.table())), " ")
}

// split parses attributes, up to a malformed one.
func split(b []byte) []Attr {
	var all []Attr
	for len(b) >= sizeofAttr {
		n := int(native.Uint16(b))
		if n < sizeofAttr || n > len(b) {
			break
		}
		all = append(all, Attr{Type: native.Uint16(b[2:]) &^ unix.NLA_F_NESTED, Value: b[sizeofAttr:n:n]})
		b = b[min((n+3)&^3, len(b)):]
	}
	return all
}

// Automatic reports whether the kernel creates records like r by itself: the route of an address's subnet, and
// link-local addresses.
func (r Record) Automatic() bool {
	switch r.Kind {
	case Route:
		return r.Header[5] == unix.RTPROT_KERNEL || r.Header[5] == temporary
	case Address:
		return r.Is6() && r.Prefix().Addr().IsLinkLocalUnicast()
	}
	return false
}
