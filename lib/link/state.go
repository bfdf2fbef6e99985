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

// Protocol marks the routes that the suite makes, as in "ip route show proto
// 46". Only they are ever removed. The number is registered neither in
// include/uapi/linux/rtnetlink.h nor in iproute2's rt_protos.
const Protocol = 46

// ServiceProtocol and ServiceMetric are those of routes to ServiceCIDRs, which the
// gateway helper keeps. A route of Protocol to the same subnet comes before.
const ServiceProtocol, ServiceMetric = 47, 2048

// A State is what an interface should be. It is up, and takes no IPv6 router
// advertisements: its addresses and routes are these.
type State struct {
	Interface string
	MAC       net.HardwareAddr // nil: as it is
	MTU       int              // 0: as it is
	// Addresses are all the interface has, other than the link-local address
	// that the kernel makes. IPv6 duplicate address detection is off for them:
	// OVN knows who has which.
	Addresses []netip.Prefix
	// Routes are all those of Protocol through the interface, in the main table.
	Routes []Route
	// LooseReversePath takes packets from senders whom the host would answer by
	// another interface (rp_filter in the kernel's ip-sysctl.rst).
	LooseReversePath bool
}

// A Route leads to a subnet by way of a gateway of the same family.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// String formats r as in "10.0.0.0/8 via 192.168.1.1".
func (r Route) String() string { return fmt.Sprintf("%s via %s", r.To, r.Via) }

// DefaultRoute leads everywhere by way of gateway.
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

// String says what changes, as in "add address 192.168.1.2/24 to k8s-node1".
func (c Change) String() string { return c.text }

// Removes reports whether the change takes something away that is there but
// not wanted. The others bring what is missing or different.
func (c Change) Removes() bool { return c.removes }

// Plan lists what Ensure would change, in order. The interface need not exist.
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

// Ensure makes an interface, which must exist, what s says.
func Ensure(s State) error {
	for _, plan := range planners {
		// The host is read before every stage: removing an address, for one,
		// takes routes with it.
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

// onLink makes a change of the interface name, looked up when it is made.
func onLink(name string, do func(netlink.Link) error) func() error {
	return func() error {
		l, err := find(name)
		if err != nil {
			return err
		}
		if l == nil {
			return fmt.Errorf("there is no interface %s", name)
		}
		return do(l)
	}
}

// planSysctls wants IPv6 where an address needs it, and no router
// advertisements: whoever shares the switch could send them (CVE-2020-10749).
// ARP requests come from an address of the interface: a router of OVN does not
// answer others, as from the host's own address when that is what replies.
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

// planSysctl wants a value in a file below /proc/sys. No file, no change: the
// kernel lacks IPv6, or the interface is not there yet.
func planSysctl(name, value string) ([]Change, error) {
	path := "/proc/sys/" + name
	is, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a sysctl: %w", err)
	}
	if string(bytes.TrimSpace(is)) == value {
		return nil, nil
	}
	return []Change{{
		text: fmt.Sprintf("set sysctl %s to %s", strings.ReplaceAll(name, "/", "."), value),
		do:   func() error { return os.WriteFile(path, []byte(value), 0o644) },
	}}, nil
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

// planStaleAddresses comes before planAddresses: with an IPv4 address its
// secondaries go, and a new address in the old one's subnet would be one.
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

// Routes are all those of one protocol through an interface, in the main table.
type Routes struct {
	Interface        string
	Protocol, Metric int // Metric 0: the kernel's usual
	Routes           []Route
}

// EnsureRoutes makes the routes what r says, and returns what it changed. Without
// the interface there is nothing to do.
func EnsureRoutes(r Routes) ([]Change, error) {
	if there, err := Exists(r.Interface); !there || err != nil {
		return nil, err
	}
	stale, err := r.planStale()
	if err != nil {
		return nil, err
	}
	missing, err := r.plan()
	if err != nil {
		return nil, err
	}
	all := append(stale, missing...)
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

// plan wants the routes to be there and of the protocol. One to the same subnet
// that somebody else made, such as ifupdown at boot, is replaced.
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

// addresses lists the addresses of an interface: none if there is none.
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

// routes lists the routes of the main table through an interface, also those with
// next hops elsewhere: none if there is none.
func routes(name string) ([]netlink.Route, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return nil, err
	}
	all, err := dump(func() (mine []netlink.Route, err error) {
		// one by one: a host that takes part in BGP may have a million others
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

// through lists the indices of the interfaces that a route leads through: several if
// it has several next hops.
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

// A Taken is a route of the main table that leads where pods should be.
type Taken struct {
	To        netip.Prefix
	Interface string // of several, one
	Connected bool   // the kernel made it for an address of the interface
}

// String formats t as in "192.168.0.0/16 dev eth0".
func (t Taken) String() string { return fmt.Sprintf("%s dev %s", t.To, t.Interface) }

// WhoHas lists the routes that share addresses with one of the subnets. Default
// routes, those of Protocol, and those through interfaces whose names start with
// ours do not count.
func WhoHas(subnets []netip.Prefix, ours string) ([]Taken, error) {
	all, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the routes: %w", err)
	}
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var out []Taken
	for _, r := range all {
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return slices.Contains(through(r), l.Attrs().Index) })
		if r.Dst == nil || r.Protocol == Protocol || i < 0 || strings.HasPrefix(links[i].Attrs().Name, ours) {
			continue
		}
		t := Taken{prefix(r.Dst), links[i].Attrs().Name, r.Protocol == unix.RTPROT_KERNEL && r.Gw == nil}
		if t.To.Bits() > 0 && slices.ContainsFunc(subnets, t.To.Overlaps) {
			out = append(out, t)
		}
	}
	return out, nil
}

// ignore is err, unless the kernel says that the work was done already.
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
