package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Headers in bytes: RFC 791 and RFC 8200, and RFC 768 or RFC 792 and RFC 4443.
const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8 // and that of ICMP echo requests
)

// Sized sends UDP or ICMP packets of size bytes, headers included, until there is
// an answer (delivered) or an ICMP error "too big" (refused). With fragment it does
// not set DF, and continues with fragments after such an error.
func (p Probe) Sized(ctx context.Context, size int, fragment bool) (delivered, refused bool, err error) {
	conn, err := p.sized(ctx, fragment)
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	question, is := p.question(size - header(p.Address.Addr()) - udpHeader)
	for ctx.Err() == nil {
		_, err := conn.Write(question)
		if err == nil {
			err = read(conn, is)
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

// Give requests an answer of size bytes by UDP until it arrives.
func (p Probe) Give(ctx context.Context, size int) error {
	conn, err := p.sized(ctx, true)
	if err != nil {
		return err
	}
	defer conn.Close()
	for ctx.Err() == nil {
		if _, err := fmt.Fprintf(conn, "give %d\n", size); err != nil {
			continue
		}
		if read(conn, func(answer []byte) bool { return len(answer) >= size }) == nil {
			return nil
		}
	}
	return fmt.Errorf("%v: no answer of %d bytes: %w", p, size, ctx.Err())
}

// Upload sends size bytes by TCP and waits until the server has read them. ctx must have a deadline.
func (p Probe) Upload(ctx context.Context, size int) error {
	conn, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, size)); err != nil {
		return fmt.Errorf("%v: sending %d bytes: %w", p, size, err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes its side
		return fmt.Errorf("%v: after %d bytes: %w", p, size, err)
	}
	return nil
}

// Download requests size bytes by TCP and reads them. ctx must have a deadline.
func (p Probe) Download(ctx context.Context, size int) error {
	conn, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "give %d\n", size); err != nil {
		return err
	}
	if n, err := io.CopyN(io.Discard, conn, int64(size)); err != nil {
		return fmt.Errorf("%v: %d bytes of %d: %w", p, n, size, err)
	}
	return nil
}

// open connects by TCP.
func (p Probe) open(ctx context.Context) (conn net.Conn, err error) {
	err = In(p.Netns, func() error {
		conn, err = p.dialer().DialContext(ctx, "tcp", p.Address.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return conn, conn.SetDeadline(deadline)
}

func header(a netip.Addr) int {
	if a.Is4() {
		return ipv4Header
	}
	return ipv6Header
}

// resendTimeout is how long an answer is waited for until the question is sent again: always, if the network tells the
// kernel only that packets without DF are too large.
const resendTimeout = 100 * time.Millisecond

// read reads until the answer arrives, at most for resendTimeout.
func read(conn net.Conn, is func([]byte) bool) error {
	_ = conn.SetReadDeadline(time.Now().Add(resendTimeout))
	answer := make([]byte, 65536)
	for {
		n, err := receive(conn, answer)
		if err != nil || is(answer[:n]) {
			return err
		}
	}
}

// receive reads a packet and removes its IP header.
func receive(conn net.Conn, buffer []byte) (n int, err error) {
	if raw, ok := conn.(*net.IPConn); ok {
		n, _, err = raw.ReadFrom(buffer)
		return n, err
	}
	return conn.Read(buffer)
}

// question returns the request of p with payload bytes of payload, and a function recognizing its answer.
func (p Probe) question(payload int) (packet []byte, is func([]byte) bool) {
	data := slices.Repeat([]byte{'x'}, payload)
	if p.Network != "icmp" {
		return data, func([]byte) bool { return true }
	}
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if p.Address.Addr().Is6() {
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	id := rand.IntN(0x10000)
	packet, _ = (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Data: data}}).Marshal(nil) // the kernel computes the checksum of ICMPv6
	return packet, func(answer []byte) bool {
		m, err := icmp.ParseMessage(reply.Protocol(), answer)
		if err != nil || m.Type != reply {
			return false
		}
		body, ok := m.Body.(*icmp.Echo)
		return ok && body.ID == id && len(body.Data) == payload
	}
}

// sized connects a socket. See IP_MTU_DISCOVER in ip(7) and IPV6_MTU_DISCOVER in ipv6(7).
func (p Probe) sized(ctx context.Context, fragment bool) (conn net.Conn, err error) {
	discover := unix.IP_PMTUDISC_DO
	if fragment {
		discover = unix.IP_PMTUDISC_DONT
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	network, address := "udp", p.Address.String()
	if p.Network == "icmp" {
		network, address = "ip4:icmp", p.Address.Addr().String()
	}
	if p.Address.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
		if p.Network == "icmp" {
			network = "ip6:ipv6-icmp"
		}
	}
	d := p.dialer()
	d.Control = func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, discover) })
		return errors.Join(err, set)
	}
	err = In(p.Netns, func() error {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
