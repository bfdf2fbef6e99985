package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Server answers TCP and SCTP connections and UDP datagrams with one line: its name and the client's address, as in
// "default/web-0 10.1.2.3:4567". The request "give N" appends N bytes.
type Server struct {
	name    string
	closers []func() error
	wg      sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]bool
}

// Serve starts a Server on TCP, UDP and, if the kernel has it, SCTP ports of all
// addresses, IPv4 and IPv6, in the network namespace of the file netns. The caller
// must Close it.
func Serve(netns, name string, ports ...int) (*Server, error) {
	s := &Server{name: name, conns: map[net.Conn]bool{}}
	err := In(netns, func() error {
		for _, port := range ports {
			if err := s.listen(port); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("serving as %s: %w", name, err)
	}
	return s, nil
}

func (s *Server) listen(port int) error {
	config := net.ListenConfig{Control: packetInfo}
	l, err := config.Listen(context.Background(), "tcp", hostPort(port))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l.Close)
	s.wg.Go(func() { s.accept(l) })
	p, err := config.ListenPacket(context.Background(), "udp", hostPort(port))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, p.Close)
	s.wg.Go(func() { s.answer(p.(*net.UDPConn)) })
	sctp, err := listenSCTP(port)
	for _, l := range sctp {
		s.closers = append(s.closers, l.Close)
		s.wg.Go(func() { s.accept(l) })
	}
	return err
}

// packetInfo makes a UDP socket report the destination address of each datagram.
// Errors do not matter: the socket may be TCP or of the other family.
func packetInfo(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}

func (s *Server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		s.wg.Go(func() { s.greet(conn) })
	}
}

// greet answers each line of a connection, so a client can test whether an old
// connection still works.
func (s *Server) greet(conn net.Conn) {
	if !s.hold(conn) {
		return
	}
	defer s.release(conn)
	buffer := make([]byte, 512)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(s.line(conn.RemoteAddr(), buffer[:n])); err != nil {
			return
		}
	}
}

// line returns the answer to a request.
func (s *Server) line(client fmt.Stringer, question []byte) []byte {
	more := 0
	_, _ = fmt.Sscanf(string(question), "give %d", &more) // else 0
	return append(fmt.Appendf(nil, "%s %s\n", s.name, client), make([]byte, more)...)
}

// answer replies to datagrams. Each reply comes from the destination address of the
// request: a host has several, and the client expects that one.
func (s *Server) answer(p *net.UDPConn) {
	buffer, control := make([]byte, 2048), make([]byte, 512)
	for {
		size, n, _, client, err := p.ReadMsgUDPAddrPort(buffer, control)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		leaveRouteOpen(control[:n])
		_, _, _ = p.WriteMsgUDPAddrPort(s.line(client, buffer[:size]), control[:n], client)
	}
}

// leaveRouteOpen clears the interface in a received packet's information, so that
// the answer is not bound to the receiving interface. See IP_PKTINFO in ip(7) and
// IPV6_PKTINFO in ipv6(7).
func leaveRouteOpen(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	for _, m := range messages { // their data is part of control
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO:
			clear(m.Data[:4])
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO:
			clear(m.Data[16:20])
		}
	}
}

// hold records a connection, or closes it if the server is closed.
func (s *Server) hold(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) release(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	_ = conn.Close()
}

// Close closes all sockets and waits until the server has ended.
func (s *Server) Close() {
	for _, c := range s.closers {
		_ = c()
	}
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}
