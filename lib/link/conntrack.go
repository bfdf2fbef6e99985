package link

import (
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
	if err != nil {
		return int(n), fmt.Errorf("forgetting UDP connections: %w", err)
	}
	return int(n), nil
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
