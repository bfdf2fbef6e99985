package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Connection is a UDP connection in the kernel's conntrack: its original destination, and the address and port of
// the replies. They differ with DNAT.
type Connection struct{ To, Answers netip.AddrPort }

// ForgetUDP deletes UDP connections of a family for which stale is true, so that their next packets are balanced
// again. It returns their number. Only conntrack zone 0 counts: on the kernel's datapath, others are those of Open vSwitch.
func ForgetUDP(family netip.Addr, stale func(Connection) bool) (int, error) {
	f := netlink.InetFamily(unix.AF_INET)
	if family.Is6() {
		f = unix.AF_INET6
	}
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f, udp(stale))
	return int(n), unforgotten(err)
}

// unforgotten says what is missing: nfnetlink has this error for messages to a module that is not there.
func unforgotten(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("forgetting UDP connections: the kernel lacks module nf_conntrack_netlink: %w: install the kernel's modules", err)
	}
	return fmt.Errorf("forgetting UDP connections: %w", err)
}

type udp func(Connection) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (stale udp) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	return f.Forward.Protocol == unix.IPPROTO_UDP && f.Zone == 0 &&
		stale(Connection{addrPort(f.Forward.DstIP, f.Forward.DstPort), addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort)})
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
