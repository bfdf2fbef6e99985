package garp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A socket sends and receives frames of one protocol on an interface (packet(7)).
type socket struct {
	fd   int
	dest unix.SockaddrLinklayer
}

// A protocol is an EtherType and the filter of its answers.
type protocol struct {
	etherType uint16
	filter    []bpf.Instruction
}

// Offsets and values of headers: RFC 826, RFC 8200 section 3, RFC 4861 section 4.4.
const (
	arpFormat    = 14         // hardware type, protocol type
	arpSizes     = 18         // address sizes, operation
	ip6Next      = 20         // next header, hop limit
	icmp6Type    = 54         // type, code; an advertisement has no extension headers
	arpOfIPv4    = 0x00010800 // Ethernet, IPv4
	arpReply     = 0x06040002 // 6 and 4 bytes, reply
	icmp6Hop255  = 58<<8 | 255
	advertised   = 136 << 8
	maxFrame     = 256 // bytes copied of a frame; an advertisement has 86
	lastReceived = unix.PACKET_MULTICAST
)

// arpReplies and advertisements select the answers of neighbours. The kernel drops all other frames of the EtherType,
// frames for other hosts, and frames of VLANs without an interface (PACKET_OTHERHOST).
var (
	sendOnly   = protocol{}
	arpReplies = protocol{unix.ETH_P_ARP, []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastReceived, SkipTrue: 5},
		bpf.LoadAbsolute{Off: arpFormat, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: arpOfIPv4, SkipTrue: 3},
		bpf.LoadAbsolute{Off: arpSizes, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: arpReply, SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	}}
	advertisements = protocol{unix.ETH_P_IPV6, []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastReceived, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ip6Next, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmp6Hop255, SkipTrue: 3},
		bpf.LoadAbsolute{Off: icmp6Type, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: advertised, SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	}}
)

// open opens a socket. It receives nothing before its filter is attached.
func open(i Interface, p protocol) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	s := &socket{fd: fd, dest: unix.SockaddrLinklayer{Protocol: htons(p.etherType), Ifindex: i.Index, Halen: 6}}
	if err := s.attach(p.filter); err != nil {
		s.close()
		return nil, err
	}
	if err := unix.Bind(fd, &s.dest); err != nil {
		s.close()
		return nil, fmt.Errorf("listening on %s: %w", i.Name, err)
	}
	return s, nil
}

// attach sets the kernel's filter of received frames.
func (s *socket) attach(filter []bpf.Instruction) error {
	if len(filter) == 0 {
		return nil
	}
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return fmt.Errorf("assembling a packet filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for n, r := range raw {
		program[n] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	err = unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("attaching a packet filter: %w", err)
	}
	return nil
}

// htons converts to network byte order.
func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// send sends a frame of any EtherType.
func (s *socket) send(frame []byte) error {
	dest := s.dest
	dest.Protocol = binary.NativeEndian.Uint16(frame[12:])
	return unix.Sendto(s.fd, frame, 0, &dest)
}

// receive returns true when a wanted frame arrives, and false after until or the end of ctx.
func receive(ctx context.Context, sockets []*socket, until time.Time, wanted func(frame []byte) bool) (bool, error) {
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	buf := make([]byte, maxFrame)
	for ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return false, nil
		}
		ready, err := poll(sockets, left)
		if err != nil {
			return false, err
		}
		for _, s := range ready {
			n, _, err := unix.Recvfrom(s.fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
				continue
			}
			if err != nil {
				return false, fmt.Errorf("reading a frame: %w", err)
			}
			if wanted(buf[:n]) {
				return true, nil
			}
		}
	}
	return false, nil
}

// poll returns the sockets with a frame or an error, none after the time left.
func poll(sockets []*socket, left time.Duration) (ready []*socket, err error) {
	fds := make([]unix.PollFd, len(sockets))
	for n, s := range sockets {
		fds[n] = unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("waiting for a frame: %w", err)
	}
	for n, fd := range fds {
		if fd.Revents != 0 {
			ready = append(ready, sockets[n])
		}
	}
	return ready, nil
}
