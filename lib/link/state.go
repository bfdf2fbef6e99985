package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks our routes, as in "ip route show proto 46". Only these are ever removed. The number is registered
// neither in include/uapi/linux/rtnetlink.h nor in iproute2's rt_protos.
const Protocol = 46

// ServiceProtocol and ServiceMetric mark the gateway helper's routes to ServiceCIDRs. A route of Protocol to the same
// subnet takes precedence.
const ServiceProtocol, ServiceMetric = 47, 2048

// A State is the desired state of an interface. The interface is up, and ignores IPv6 router advertisements.
type State struct {
	Interface string
	MAC       net.HardwareAddr // nil: unchanged
	MTU       int              // 0: unchanged
	// Addresses are all addresses except the kernel's link-local one. IPv6 duplicate address detection is off for
	// them: OVN assigns addresses uniquely.
	Addresses []netip.Prefix
	// Routes are all routes of Protocol through the interface, in the main table.
	Routes []Route
	// LooseReversePath accepts packets even if replies to their senders leave by another interface (rp_filter in the
	// kernel's ip-sysctl.rst).
	LooseReversePath bool
}

// A Route is a route to a subnet via a gateway of the same family.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// String formats r as in "10.0.0.0/8 via 192.168.1.1".
func (r Route) String() string { return fmt.Sprintf("%s via %s", r.To, r.Via) }

// DefaultRoute is the default route via gateway.
func DefaultRoute(gateway netip.Addr) Route {
	return Route{netip.PrefixFrom(zero(gateway), 0), gateway}
}

func zero(family netip.Addr) netip.Addr {
	if family.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// A Change is one change of the host's network.
type Change struct {
	text    string
	removes bool
	do      func() error
}

// String describes the change, as in "add address 192.168.1.2/24 to k8s-node1".
func (c Change) String() string { return c.text }

// Removes reports whether the change only removes unwanted state. All others add or correct something.
func (c Change) Removes() bool { return c.removes }

// Plan lists the changes of Ensure, in order. The interface need not exist.
func Plan(s State) ([]Change, error) {
	var all []Change
	for _, plan := range planners {
		changes, err := plan(s)
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}

// Ensure configures an existing interface as in s.
func Ensure(s State) error {
	for _, plan := range planners {
		// Each stage reads the state again: for example, removing an address removes routes, too.
		changes, err := plan(s)
		if err != nil {
			return err
		}
		if err := apply(changes); err != nil {
			return err
		}
	}
	return nil
}

var planners = []func(State) ([]Change, error){planSysctls, planLink, planStaleAddresses, planAddresses, planStaleRoutes, planRoutes}

func apply(changes []Change) error {
	for _, c := range changes {
		if err := c.do(); err != nil {
			return fmt.Errorf("trying to %s: %w", c, err)
		}
	}
	return nil
}

// onLink wraps a change of an interface. The interface is looked up at the time of the change.
func onLink(name string, do func(netlink.Link) error) func() error {
	return func() error {
		l, err := find(name)
		if err != nil {
			return err
		}
		if l == nil {
			return fmt.Errorf("interface %s not found", name)
		}
		return do(l)
	}
}

// planSysctls enables IPv6 if an address needs it, and disables router advertisements: anyone on the same switch
// could send them (CVE-2020-10749). ARP requests must have an address of the interface as their sender: OVN's routers
// do not answer others, as for replies from another address of the host.
func planSysctls(s State) ([]Change, error) {
	values := [][2]string{{"ipv6/accept_ra", "0"}, {"ipv4/arp_announce", "2"}}
	if slices.ContainsFunc(s.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		values = append(values, [2]string{"ipv6/disable_ipv6", "0"}, [2]string{"ipv6/accept_dad", "0"})
	}
	if s.LooseReversePath {
		values = append(values, [2]string{"ipv4/rp_filter", "2"})
	}
	var changes []Change
	for _, kv := range values {
		family, key, _ := strings.Cut(kv[0], "/")
		c, err := planSysctl("net/"+family+"/conf/"+s.Interface+"/"+key, kv[1])
		if err != nil {
			return nil, err
		}
		changes = append(changes, c...)
	}
	return changes, nil
}

// planSysctl sets a file below /proc/sys. A missing file is skipped: the kernel lacks IPv6, or the interface does not
// exist yet.
func planSysctl(name, value string) ([]Change, error) {
	is, err := readSysctl(name)
	if err != nil || is == "" || is == value {
		return nil, err
	}
	return []Change{{
		text: fmt.Sprintf("set sysctl %s to %s", strings.ReplaceAll(name, "/", "."), value),
		do:   func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644) },
	}}, nil
}

// readSysctl reads a file below /proc/sys, "" if it is missing.
func readSysctl(name string) (string, error) {
	text, err := os.ReadFile("/proc/sys/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading a sysctl: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

func planLink(s State) ([]Change, error) {
	l, err := find(s.Interface)
	if err != nil {
		return nil, err
	}
	is := &netlink.LinkAttrs{}
	if l != nil {
		is = l.Attrs()
	}
	var changes []Change
	if s.MAC != nil && !bytes.Equal(is.HardwareAddr, s.MAC) {
		changes = append(changes, Change{
			text: fmt.Sprintf("set the MAC of %s to %s", s.Interface, s.MAC),
			do:   onLink(s.Interface, func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, s.MAC) }),
		})
	}
	if s.MTU != 0 && is.MTU != s.MTU {
		changes = append(changes, Change{
			text: fmt.Sprintf("set the MTU of %s to %d", s.Interface, s.MTU),
			do:   onLink(s.Interface, func(l netlink.Link) error { return netlink.LinkSetMTU(l, s.MTU) }),
		})
	}
	if is.Flags&net.FlagUp == 0 {
		changes = append(changes, Change{text: fmt.Sprintf("set %s up", s.Interface), do: onLink(s.Interface, netlink.LinkSetUp)})
	}
	return changes, nil
}

// planStaleAddresses comes before planAddresses: deleting an IPv4 address deletes its secondaries, and a new address
// in the old one's subnet would be one.
func planStaleAddresses(s State) ([]Change, error) {
	addrs, err := addresses(s.Interface)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, a := range addrs {
		p := prefix(a.IPNet)
		if slices.Contains(s.Addresses, p) && a.Flags&unix.IFA_F_DADFAILED == 0 {
			continue
		}
		if p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			continue
		}
		changes = append(changes, Change{
			text:    fmt.Sprintf("remove address %s from %s", p, s.Interface),
			removes: true,
			do:      onLink(s.Interface, func(l netlink.Link) error { return ignore(netlink.AddrDel(l, &a), unix.EADDRNOTAVAIL) }),
		})
	}
	return changes, nil
}

func planAddresses(s State) ([]Change, error) {
	addrs, err := addresses(s.Interface)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, p := range s.Addresses {
		if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return prefix(a.IPNet) == p }) {
			continue
		}
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		changes = append(changes, Change{
			text: fmt.Sprintf("add address %s to %s", p, s.Interface),
			do:   onLink(s.Interface, func(l netlink.Link) error { return netlink.AddrReplace(l, a) }),
		})
	}
	return changes, nil
}

func planStaleRoutes(s State) ([]Change, error) { return s.routes().planStale() }

func planRoutes(s State) ([]Change, error) { return s.routes().plan() }

func (s State) routes() Routes {
	return Routes{Interface: s.Interface, Protocol: Protocol, Routes: s.Routes}
}

// Routes are all routes of one protocol through an interface, in the main table.
type Routes struct {
	Interface        string
	Protocol, Metric int // Metric 0: the kernel's default
	Routes           []Route
}

// PlanRoutes lists the changes of EnsureRoutes.
func PlanRoutes(r Routes) ([]Change, error) {
	if there, err := Exists(r.Interface); !there || err != nil {
		return nil, err
	}
	stale, err := r.planStale()
	if err != nil {
		return nil, err
	}
	missing, err := r.plan()
	return append(stale, missing...), err
}

// EnsureRoutes replaces the routes by those in r, and returns the changes. Without the interface it does nothing.
func EnsureRoutes(r Routes) ([]Change, error) {
	all, err := PlanRoutes(r)
	if err != nil {
		return nil, err
	}
	return all, apply(all)
}

func (r Routes) planStale() ([]Change, error) {
	have, err := routes(r.Interface)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, h := range have {
		if int(h.Protocol) != r.Protocol || slices.ContainsFunc(r.Routes, func(want Route) bool { return same(h, want) }) {
			continue
		}
		changes = append(changes, Change{
			text:    fmt.Sprintf("remove route %s via %s dev %s", prefix(h.Dst), h.Gw, r.Interface),
			removes: true,
			do:      func() error { return ignore(netlink.RouteDel(&h), unix.ESRCH) },
		})
	}
	return changes, nil
}

// plan adds missing routes, with our protocol. A foreign route to the same subnet, for example by ifupdown at boot,
// is replaced.
func (r Routes) plan() ([]Change, error) {
	have, err := routes(r.Interface)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, want := range r.Routes {
		if slices.ContainsFunc(have, func(h netlink.Route) bool { return int(h.Protocol) == r.Protocol && same(h, want) }) {
			continue
		}
		changes = append(changes, Change{
			text: fmt.Sprintf("add route %s dev %s", want, r.Interface),
			do: onLink(r.Interface, func(l netlink.Link) error {
				return netlink.RouteReplace(&netlink.Route{
					LinkIndex: l.Attrs().Index, Dst: ipNet(want.To), Gw: want.Via.AsSlice(), Protocol: netlink.RouteProtocol(r.Protocol), Priority: r.Metric,
				})
			}),
		})
	}
	return changes, nil
}

func same(r netlink.Route, want Route) bool {
	gw, _ := netip.AddrFromSlice(r.Gw)
	return prefix(r.Dst) == want.To && gw.Unmap() == want.Via
}

// addresses lists the addresses of an interface, none if it does not exist.
func addresses(name string) ([]netlink.Addr, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return nil, err
	}
	all, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("listing the addresses of %s: %w", name, err)
	}
	return all, nil
}

// routes lists the routes of the main table through an interface, including those with further next hops elsewhere,
// none if the interface does not exist.
func routes(name string) ([]netlink.Route, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return nil, err
	}
	all, err := dump(func() (mine []netlink.Route, err error) {
		// one by one: a host with BGP may have a million others
		err = netlink.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{}, 0, func(r netlink.Route) bool {
			if slices.Contains(through(r), l.Attrs().Index) {
				mine = append(mine, r)
			}
			return true
		})
		return mine, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the routes of %s: %w", name, err)
	}
	return all, nil
}

// Routing reads the main table: the destinations of routes through an interface, except default routes, and the next hops
// of all default routes. Both are sorted.
func Routing(name string) (destinations []netip.Prefix, hops []netip.Addr, err error) {
	mine, err := routes(name)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range mine {
		if r.Dst != nil && prefix(r.Dst).Bits() > 0 {
			destinations = append(destinations, prefix(r.Dst))
		}
	}
	slices.SortFunc(destinations, netip.Prefix.Compare)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		defaults, err := dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("listing the default routes: %w", err)
		}
		for _, r := range defaults {
			for _, hop := range append(r.MultiPath, &netlink.NexthopInfo{Gw: r.Gw}) {
				if a, ok := netip.AddrFromSlice(hop.Gw); ok {
					hops = append(hops, a.Unmap())
				}
			}
		}
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return slices.Compact(destinations), slices.Compact(hops), nil
}

// through lists the indices of a route's interfaces, one for each next hop.
func through(r netlink.Route) []int {
	if len(r.MultiPath) == 0 {
		return []int{r.LinkIndex}
	}
	var all []int
	for _, hop := range r.MultiPath {
		if !slices.Contains(all, hop.LinkIndex) {
			all = append(all, hop.LinkIndex)
		}
	}
	return all
}

// An OverlappingRoute is a route of the main table that overlaps with subnets for pods.
type OverlappingRoute struct {
	To        netip.Prefix
	Interface string // one of several
	Connected bool   // created by the kernel for an address of the interface
}

// String formats t as in "192.168.0.0/16 dev eth0".
func (t OverlappingRoute) String() string { return fmt.Sprintf("%s dev %s", t.To, t.Interface) }

// Overlapping lists the routes overlapping with one of the subnets, except default routes, routes of Protocol, and routes
// through interfaces with the name prefix ours.
func Overlapping(subnets []netip.Prefix, ours string) ([]OverlappingRoute, error) {
	all, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the routes: %w", err)
	}
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var out []OverlappingRoute
	for _, r := range all {
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return slices.Contains(through(r), l.Attrs().Index) })
		if r.Dst == nil || r.Protocol == Protocol || i < 0 || strings.HasPrefix(links[i].Attrs().Name, ours) {
			continue
		}
		t := OverlappingRoute{prefix(r.Dst), links[i].Attrs().Name, r.Protocol == unix.RTPROT_KERNEL && r.Gw == nil}
		if t.To.Bits() > 0 && slices.ContainsFunc(subnets, t.To.Overlaps) {
			out = append(out, t)
		}
	}
	return out, nil
}

// ignore returns err, unless it is done: the kernel's error for an operation that was done already.
func ignore(err, done error) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefix is the inverse of ipNet.
func prefix(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if size == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits)
}
