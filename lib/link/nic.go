package link

import (
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

// A NIC is the state of a network interface.
type NIC struct {
	MAC       string
	Addresses []netip.Prefix // without link-local ones
	// Doubtful lists further addresses: duplicates of another host's, or with duplicate address detection under way.
	Doubtful []netip.Prefix
	Loopback bool
	Master   string // the bond or bridge that it belongs to; "ovs-system" of Open vSwitch's
	Default  bool   // a default route of the main table uses it
	NoIPv6   bool   // IPv6 is disabled on it
	// ReversePath is its rp_filter, see ip-sysctl.rst; "" if the kernel has none.
	ReversePath string
}

// Inspect returns the state of an interface, nil if there is none.
func Inspect(name string) (*NIC, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return nil, err
	}
	attrs := l.Attrs()
	n := &NIC{MAC: attrs.HardwareAddr.String(), Loopback: attrs.Flags&net.FlagLoopback != 0}
	if attrs.MasterIndex != 0 {
		master, err := netlink.LinkByIndex(attrs.MasterIndex)
		if err != nil {
			return nil, fmt.Errorf("looking up the master of %s: %w", name, err)
		}
		n.Master = master.Attrs().Name
	}
	off, err := readSysctl(disableIPv6(name))
	if err != nil {
		return nil, err
	}
	n.NoIPv6 = off == "1"
	if n.ReversePath, err = readSysctl(reversePath(name)); err != nil {
		return nil, err
	}
	addrs, err := addresses(name)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		switch p := prefix(a.IPNet); {
		case p.Addr().IsLinkLocalUnicast():
		case usable(a):
			n.Addresses = append(n.Addresses, p)
		default:
			n.Doubtful = append(n.Doubtful, p)
		}
	}
	all, err := routes(name)
	n.Default = slices.ContainsFunc(all, func(r netlink.Route) bool { return r.Dst == nil || prefix(r.Dst).Bits() == 0 })
	return n, err
}

// usable reports whether an address is known to be unique: duplicate address detection has ended, and found no
// duplicate.
func usable(a netlink.Addr) bool {
	return a.Flags&unix.IFA_F_DADFAILED == 0 && (a.Flags&unix.IFA_F_TENTATIVE == 0 || a.Flags&unix.IFA_F_OPTIMISTIC != 0)
}

// Carries reports whether packets from this host to an address, or to this host at that address, use an interface.
func Carries(name string, to netip.Addr) (bool, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return false, err
	}
	addrs, err := addresses(name)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return prefix(a.IPNet).Addr() == to }) {
		return true, nil
	}
	routes, err := netlink.RouteGet(to.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the route to %s: %w", to, err)
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool { return slices.Contains(through(r), l.Attrs().Index) }), nil
}

// PlanSurrender lists the changes of Surrender.
func PlanSurrender(name string) ([]Change, error) {
	var all []Change
	for _, plan := range surrenderPlanners(name) {
		changes, err := plan()
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}

// Surrender leaves an interface to Open vSwitch: the interface is up, and the host has no address on it and neither
// answers nor forwards what comes in there. The userspace datapath reads copies of the frames, and the kernel gets the
// originals: without routes by the interface, a strict rp_filter drops all IPv4 packets.
func Surrender(name string) error {
	for _, plan := range surrenderPlanners(name) {
		changes, err := plan()
		if err != nil {
			return err
		}
		if err := apply(changes); err != nil {
			return err
		}
	}
	return nil
}

func surrenderPlanners(name string) []func() ([]Change, error) {
	return []func() ([]Change, error){
		func() ([]Change, error) { return planSysctl(disableIPv6(name), "1") },
		func() ([]Change, error) { return planSysctl(reversePath(name), "1") },
		func() ([]Change, error) { return planStaleAddresses(State{Interface: name}) },
		func() ([]Change, error) { return planLink(State{Interface: name}) },
	}
}

// A Claim is the state of an interface for Reclaim.
type Claim struct {
	Interface   string
	NoIPv6      bool           // IPv6 stays disabled
	ReversePath string         // its rp_filter; "": that of new interfaces
	Addresses   []netip.Prefix // addresses unknown to package ifstate
}

// Reclaim gives an interface back to the host: it reverts the changes of Surrender that are unknown to package
// record. A missing interface is not an error.
func Reclaim(c Claim) error {
	changes, err := PlanReclaim(c)
	if err != nil {
		return err
	}
	return apply(changes)
}

// PlanReclaim lists the changes of Reclaim.
func PlanReclaim(c Claim) ([]Change, error) {
	if there, err := Exists(c.Interface); !there || err != nil {
		return nil, err
	}
	var all []Change
	if !c.NoIPv6 {
		changes, err := planSysctl(disableIPv6(c.Interface), "0")
		if err != nil {
			return nil, err
		}
		all = changes
	}
	filter, err := planReversePath(c)
	if err != nil {
		return nil, err
	}
	all = append(all, filter...)
	changes, err := planAddresses(State{Interface: c.Interface, Addresses: c.Addresses})
	return append(all, changes...), err
}

// planReversePath gives an interface its former rp_filter.
func planReversePath(c Claim) (changes []Change, err error) {
	former := c.ReversePath
	if former == "" {
		if former, err = readSysctl(reversePath("default")); err != nil || former == "" {
			return nil, err
		}
	}
	return planSysctl(reversePath(c.Interface), former)
}

func reversePath(name string) string { return "net/ipv4/conf/" + name + "/rp_filter" }
func disableIPv6(name string) string { return "net/ipv6/conf/" + name + "/disable_ipv6" }

// PlanForwarding lists the changes that enable forwarding of a family on this host.
//
// With IPv6 forwarding, the kernel ignores router advertisements unless accept_ra is 2 (ip-sysctl.rst). Interfaces
// that accept them now keep accepting them: those without forwarding yet, new ones ("default"), and those with routes
// from advertisements.
func PlanForwarding(family netip.Addr) ([]Change, error) {
	if family.Is4() {
		return planSysctl("net/ipv4/ip_forward", "1")
	}
	advertised, err := advertisedInterfaces()
	if err != nil {
		return nil, err
	}
	const conf = "/proc/sys/net/ipv6/conf/"
	entries, err := os.ReadDir(conf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var all []Change
	for _, e := range entries {
		name := e.Name()
		accepts, errRA := os.ReadFile(conf + name + "/accept_ra")
		forwards, errForward := os.ReadFile(conf + name + "/forwarding")
		if name == "all" || name == "lo" || errRA != nil || errForward != nil { // or it was just deleted
			continue
		}
		if strings.TrimSpace(string(accepts)) != "1" || strings.TrimSpace(string(forwards)) == "1" && !advertised[name] {
			continue
		}
		changes, err := planSysctl("net/ipv6/conf/"+name+"/accept_ra", "2")
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	changes, err := planSysctl("net/ipv6/conf/all/forwarding", "1")
	return append(all, changes...), err
}

// advertisedInterfaces returns the interfaces with routes from router advertisements.
func advertisedInterfaces() (map[string]bool, error) {
	routes, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V6) })
	if err != nil {
		return nil, fmt.Errorf("listing the routes: %w", err)
	}
	seen := map[int]bool{}
	for _, r := range routes {
		for _, index := range through(r) {
			seen[index] = seen[index] || r.Protocol == unix.RTPROT_RA
		}
	}
	out := map[string]bool{}
	for index, advertised := range seen {
		if !advertised {
			continue
		}
		l, err := netlink.LinkByIndex(index)
		if err != nil {
			return nil, fmt.Errorf("looking up an interface: %w", err)
		}
		out[l.Attrs().Name] = true
	}
	return out, nil
}

// EnsureForwarding enables forwarding of a family on this host, and returns the changes.
func EnsureForwarding(family netip.Addr) ([]Change, error) {
	changes, err := PlanForwarding(family)
	if err != nil {
		return nil, err
	}
	return changes, apply(changes)
}

// RouteLocalnet sets or clears route_localnet of an interface: packets with addresses of 127.0.0.0/8 may pass. The
// caller must protect programs listening there from foreign packets, except replies.
func RouteLocalnet(name string, allowed bool) error {
	value := map[bool]string{false: "0", true: "1"}[allowed]
	changes, err := planSysctl("net/ipv4/conf/"+name+"/route_localnet", value)
	if err != nil {
		return err
	}
	return apply(changes)
}

// LocalPorts returns the range of ports for the host's own connections.
func LocalPorts() (low, high uint16, err error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(strings.TrimSpace(string(text)), &low, &high)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading net.ipv4.ip_local_port_range: %w", err)
	}
	return low, high, nil
}
