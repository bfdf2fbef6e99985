package probe

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Headers of a UDP datagram in bytes: RFC 791 or RFC 8200, and RFC 768.
const (
	ipv4UDP = 20 + 8
	ipv6UDP = 40 + 8
)

// Datagram asks by UDP packets of size bytes, headers included, until there is an
// answer, delivered, or an ICMP error says that size is too large, refused. With
// fragment it never sets DF and goes on, in fragments, after such an error.
func (p Probe) Datagram(ctx context.Context, size int, fragment bool) (delivered, refused bool, err error) {
	conn, err := p.sized(ctx, fragment)
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	payload := size - ipv4UDP
	if p.Address.Addr().Is6() {
		payload = size - ipv6UDP
	}
	hello, answer := slices.Repeat([]byte{'x'}, payload), make([]byte, 4096)
	for ctx.Err() == nil {
		_, err := conn.Write(hello)
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(tryTimeout))
			_, err = conn.Read(answer)
		}
		switch {
		case err == nil:
			return true, refused, nil
		case errors.Is(err, syscall.EMSGSIZE) && !fragment:
			return false, true, nil
		case errors.Is(err, syscall.EMSGSIZE):
			refused = true
		}
	}
	return false, refused, nil
}

// sized connects a UDP socket. See IP_MTU_DISCOVER in ip(7) and IPV6_MTU_DISCOVER
// in ipv6(7).
func (p Probe) sized(ctx context.Context, fragment bool) (conn net.Conn, err error) {
	discover := unix.IP_PMTUDISC_DO
	if fragment {
		discover = unix.IP_PMTUDISC_DONT
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if p.Address.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	d := p.dialer()
	d.Control = func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, discover) })
		return errors.Join(err, set)
	}
	err = In(p.Netns, func() error {
		conn, err = d.DialContext(ctx, "udp", p.Address.String())
		return err
	})
	return conn, err
}
