package dbserver

import (
	"net/netip"
	"strings"
)

// A listener is a passive target of ovsdb(7).
type listener struct {
	scheme, port string
	addr         netip.Addr // invalid: a name
}

// parse reads a target. Without an address it has IPv4 only.
func parse(target string) listener {
	scheme, rest, _ := strings.Cut(target, ":")
	port, host, _ := strings.Cut(rest, ":")
	l := listener{scheme, port, netip.IPv4Unspecified()}
	if host != "" {
		l.addr, _ = netip.ParseAddr(strings.Trim(host, "[]"))
	}
	return l
}

// compare reports whether the listener at the target other serves all clients of the one at target, and whether the two
// conflict: then the kernel accepts only one of them, and just the server's log has the failure.
func compare(other, target string) (serves, conflicts bool) {
	a, b := parse(other), parse(target)
	if a.scheme != "ptcp" && a.scheme != "pssl" || a.port != b.port || a.port == "0" { // 0: the kernel chooses one
		return false, false
	}
	return a.scheme == b.scheme && covers(a.addr, b.addr), covers(a.addr, b.addr) || covers(b.addr, a.addr)
}

// covers reports whether a listener at a has all connections to b. One at [::] has those of IPv4, too.
func covers(a, b netip.Addr) bool {
	return a == b || a.IsUnspecified() && (a.Is6() || !b.Is6())
}
