package prober

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// dial opens a TCP connection to a host with these addresses, and closes it.
func dial(ctx context.Context, to netip.AddrPort, addrs []netip.Addr) Answer {
	errorQueue := -1 // the same socket: the Dialer closes its own descriptor
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { errorQueue = openErrorQueue(int(fd), to.Addr()) })
	}}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if errorQueue >= 0 {
		defer unix.Close(errorQueue)
	}
	if err == nil {
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.SetLinger(0) // no TIME_WAIT on either side
		}
		_ = conn.Close()
		return Answer{Alive: true}
	}
	if e, ok := readErrorQueue(errorQueue); ok {
		return e.answer(addrs)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET):
		return Answer{Alive: true}
	case errors.Is(err, syscall.EACCES):
		return Answer{Rejector: netip.IPv6Unspecified()} // icmp(7): administratively prohibited
	}
	return Answer{}
}

// here reports whether an address is this host's: then packets to it have it as their source.
func here(to netip.AddrPort) bool {
	conn, err := net.Dial("udp", to.String()) // sends nothing
	if err != nil {
		return false
	}
	defer conn.Close()
	from, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return from.Addr() == to.Addr()
}

// openErrorQueue returns a second descriptor of a socket for reading ICMP errors (ip(7), IP_RECVERR), or -1.
func openErrorQueue(fd int, to netip.Addr) int {
	level, option := unix.SOL_IP, unix.IP_RECVERR
	if to.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	if unix.SetsockoptInt(fd, level, option, 1) != nil {
		return -1
	}
	queue, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return queue
}

// An icmpError is an ICMP error caused by our packet.
type icmpError struct {
	ipv6       bool
	kind, code uint8
	from       netip.Addr
}

// From linux/errqueue.h: struct sock_extended_err is followed by the address of the ICMP error's sender.
const (
	originICMP, originICMP6 = 2, 3
	extendedErrSize         = 16
)

// readErrorQueue returns the ICMP error behind a failed connection. TCP reports them since Linux 5.11.
func readErrorQueue(fd int) (e icmpError, ok bool) {
	if fd < 0 {
		return e, false
	}
	buffer := make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(fd, nil, buffer, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return e, false
	}
	messages, err := unix.ParseSocketControlMessage(buffer[:n])
	if err != nil {
		return e, false
	}
	for _, m := range messages {
		v4 := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if v4 || v6 {
			return parseExtendedErr(m.Data)
		}
	}
	return e, false
}

// parseExtendedErr reads a struct sock_extended_err.
func parseExtendedErr(data []byte) (e icmpError, ok bool) {
	if len(data) < extendedErrSize+unix.SizeofSockaddrInet4 {
		return e, false
	}
	e = icmpError{ipv6: data[4] == originICMP6, kind: data[5], code: data[6]}
	if !e.ipv6 && data[4] != originICMP {
		return e, false
	}
	from := data[extendedErrSize:]
	switch family := binary.NativeEndian.Uint16(from); {
	case family == unix.AF_INET:
		e.from = netip.AddrFrom4([4]byte(from[4:8]))
	case family == unix.AF_INET6 && len(from) >= unix.SizeofSockaddrInet6:
		e.from = netip.AddrFrom16([16]byte(from[8:24]))
	}
	return e, true
}

// answer interprets the error for a host with these addresses.
func (e icmpError) answer(addrs []netip.Addr) Answer {
	switch {
	case slices.Contains(addrs, e.from):
		return Answer{Alive: true}
	case e.rejects():
		return Answer{Rejector: e.from}
	}
	return Answer{} // a router does not find the host
}

// rejects reports whether this is an error sent by firewalls: "destination unreachable" of ICMP (RFC 1812 section
// 5.2.7.1, including port unreachable, the default of iptables) or of ICMPv6 (RFC 4443 section 3.1).
func (e icmpError) rejects() bool {
	if e.ipv6 {
		return e.kind == 1 && slices.Contains([]uint8{1, 4, 5, 6}, e.code)
	}
	return e.kind == 3 && slices.Contains([]uint8{3, 9, 10, 13}, e.code)
}
