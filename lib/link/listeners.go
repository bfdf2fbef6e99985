package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Listener is a port at which a program of this host accepts connections or datagrams.
type Listener struct {
	Protocol string // "tcp" or "udp"
	Port     uint16
}

// Listeners lists the ports at which programs of this host listen, except at loopback addresses. The kernel filters
// out all connections.
func Listeners() (map[Listener]bool, error) {
	out := map[Listener]bool{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, q := range []struct {
			protocol uint8
			name     string
			state    uint8
		}{
			{unix.IPPROTO_TCP, "tcp", netlink.TCP_LISTEN},
			{unix.IPPROTO_UDP, "udp", netlink.TCP_CLOSE}, // not connected
		} {
			ids, err := sockets(socketQuery{Family: family, Protocol: q.protocol, States: 1 << q.state})
			if err != nil {
				return nil, fmt.Errorf("listing sockets: %w", err)
			}
			for _, id := range ids {
				if a := id.Addr().Unmap(); !a.IsLoopback() {
					out[Listener{q.name, id.Port()}] = true
				}
			}
		}
	}
	return out, nil
}

// A socketQuery is struct inet_diag_req_v2 of linux/inet_diag.h.
type socketQuery struct {
	Family, Protocol, Ext, _ uint8
	States                   uint32
	_                        [48]byte // struct inet_diag_sockid
}

// Serialize implements nl.NetlinkRequestData.
func (q socketQuery) Serialize() []byte {
	b := make([]byte, q.Len())
	b[0], b[1] = q.Family, q.Protocol
	binary.NativeEndian.PutUint32(b[4:], q.States)
	return b
}

// Len implements nl.NetlinkRequestData.
func (socketQuery) Len() int { return 56 }

// sockets lists the local ends of the sockets selected by a query. An answer is struct inet_diag_msg: four bytes, the
// ports, the source address.
func sockets(q socketQuery) (ends []netip.AddrPort, err error) {
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.AddData(q)
	messages, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, m := range messages {
		if len(m) < 24 {
			return nil, fmt.Errorf("the kernel's answer has %d bytes", len(m))
		}
		addr, _ := netip.AddrFromSlice(m[8:24])
		if q.Family == unix.AF_INET {
			addr, _ = netip.AddrFromSlice(m[8:12])
		}
		ends = append(ends, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(m[4:6])))
	}
	return ends, nil
}
