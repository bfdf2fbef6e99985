// Package probe tests connectivity between network namespaces: servers answer with
// their name, and probes report which step failed.
//
// It starts no processes: a thread enters the namespace to create a socket, and the
// socket stays there.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"ovn-k8s/test/limit"
)

// tryTimeout bounds one try of Until. It is shorter than the first retransmission
// of a TCP SYN, one second.
const tryTimeout = 900 * time.Millisecond

// The pauses of Until between tries double from shortestPause to longestPause.
const (
	shortestPause = 20 * time.Millisecond
	longestPause  = 100 * time.Millisecond
)

// A Probe is a request to Address.
type Probe struct {
	// Netns is the path of the client's network namespace, such as /proc/1/ns/net.
	// Default: the program's own.
	Netns string
	// Network is "tcp", "udp", "sctp" or "icmp". ICMP needs no port.
	Network string
	// Address is the server's address.
	Address netip.AddrPort
	// Source is the client's address for TCP or UDP, if it matters.
	Source netip.Addr
}

// String describes p, without the namespace.
func (p Probe) String() string {
	if p.Network == "icmp" {
		return "icmp to " + p.Address.Addr().String()
	}
	return p.Network + " to " + p.Address.String()
}

// Once sends one request: one datagram, one echo request, or one TCP connection
// (the kernel retransmits the SYN after a second). It returns the server's answer,
// "" for ICMP. ctx must have a deadline.
func (p Probe) Once(ctx context.Context) (answer string, err error) {
	if p.Network == "icmp" {
		err = p.echo(ctx)
	} else {
		answer, err = p.ask(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%v: %w", p, err)
	}
	return answer, nil
}

// Until repeats the request until there is an answer or ctx ends: the first packet
// between two hosts may be lost during address resolution (ARP, neighbour
// discovery). The error is that of the last request, unless the end of ctx
// interrupted it.
func (p Probe) Until(ctx context.Context) (answer string, err error) {
	pause := shortestPause
	for tries := 1; ; tries++ {
		try, cancel := context.WithTimeout(ctx, limit.Of(tryTimeout))
		answer, failed := p.Once(try)
		cancel()
		if failed == nil {
			return answer, nil
		}
		if err == nil || ctx.Err() == nil {
			err = failed
		}
		// A refusal comes at once. On a slow machine many spinning probes would keep
		// from its work whatever they wait for.
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, limit.Of(longestPause))
		if ctx.Err() != nil {
			return "", fmt.Errorf("after %d tries: %w", tries, err)
		}
	}
}

// Answer parses a server's answer: the server's name and the client's address as
// seen by the server.
func Answer(text string) (name string, client netip.AddrPort, err error) {
	name, address, _ := strings.Cut(text, " ")
	client, err = netip.ParseAddrPort(address)
	if err != nil {
		return "", client, fmt.Errorf("answer %q: %w", text, err)
	}
	return name, netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), nil
}

// Silence sends several requests and returns an error if there is any answer.
func (p Probe) Silence(ctx context.Context, tries int) error {
	for range tries {
		try, cancel := context.WithTimeout(ctx, limit.Of(tryTimeout))
		answer, err := p.Once(try)
		cancel()
		if err == nil {
			return fmt.Errorf("%v: answered %q, want silence", p, answer)
		}
	}
	return ctx.Err()
}

// ask connects, says hello and reads all of the answer.
func (p Probe) ask(ctx context.Context) (string, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer) // a server's answer is one small write
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return "", err
	}
	return strings.TrimSpace(string(answer[:n])), nil
}

// dial connects.
func (p Probe) dial(ctx context.Context) (conn net.Conn, err error) {
	err = In(p.Netns, func() (err error) {
		if p.Network == "sctp" {
			conn, err = p.dialSCTP(ctx)
			return err
		}
		conn, err = p.dialer().DialContext(ctx, p.Network, p.Address.String())
		return err
	})
	return conn, err
}

func (p Probe) dialer() *net.Dialer {
	d := new(net.Dialer)
	switch {
	case !p.Source.IsValid():
	case p.Network == "tcp":
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Source, 0))
	default:
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Source, 0))
	}
	return d
}

// echo sends one ICMP echo request and waits for its reply.
func (p Probe) echo(ctx context.Context) error {
	network, protocol := "ip4:icmp", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if p.Address.Addr().Is6() {
		network, protocol = "ip6:ipv6-icmp", 58
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn net.PacketConn
	err := In(p.Netns, func() (err error) {
		conn, err = net.ListenPacket(network, "")
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	// The socket receives all replies in the namespace: this identifies ours.
	id := int(time.Now().UnixNano() & 0xffff)
	echo := icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Data: []byte("hello")}}
	packet, err := echo.Marshal(nil) // the kernel computes the checksum of ICMPv6
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(packet, &net.IPAddr{IP: p.Address.Addr().AsSlice()}); err != nil {
		return err
	}
	return awaitEcho(conn, protocol, reply, id)
}

func awaitEcho(conn net.PacketConn, protocol int, reply icmp.Type, id int) error {
	buffer := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if body, ok := m.Body.(*icmp.Echo); ok && body.ID == id {
			return nil
		}
	}
}

// In runs f on a thread in the network namespace of the file netns. An empty name
// means the program's own. Sockets created by f stay in the namespace; goroutines
// started by f do not.
func In(netns string, f func() error) error {
	if netns == "" {
		return f()
	}
	there, err := os.Open(netns)
	if err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	defer there.Close()
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer here.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the network namespace %s: %w", netns, err)
	}
	err = f()
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		// the thread stays locked, so that it ends with this goroutine
		return errors.Join(err, fmt.Errorf("leaving the network namespace %s: %w", netns, back))
	}
	runtime.UnlockOSThread()
	return err
}

// Address returns an address and port as a netip.AddrPort.
func Address(addr netip.Addr, port int) netip.AddrPort { return netip.AddrPortFrom(addr, uint16(port)) }

func hostPort(port int) string { return ":" + strconv.Itoa(port) }
