package garp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A socket sends and hears whole frames of an interface (packet(7)).
type socket struct {
	fd   int
	dest unix.SockaddrLinklayer
}

// open opens a socket that hears what comes in from now on.
func open(i Interface) (*socket, error) {
	all := htons(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	s := &socket{fd: fd, dest: unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index, Halen: 6}}
	if err := unix.Bind(fd, &s.dest); err != nil {
		s.close()
		return nil, fmt.Errorf("listening on %s: %w", i.Name, err)
	}
	return s, nil
}

// htons gives a number the byte order of the network.
func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func (s *socket) close() { _ = unix.Close(s.fd) }

func (s *socket) send(frame []byte) error { return unix.Sendto(s.fd, frame, 0, &s.dest) }

// hear returns true when a frame that came in is wanted, and false when until has
// passed or ctx has ended.
func (s *socket) hear(ctx context.Context, until time.Time, wanted func(frame []byte) bool) (bool, error) {
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return false, nil
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("waiting for a frame: %w", err)
		}
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading a frame: %w", err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if wanted(buf[:n]) {
			return true, nil
		}
	}
	return false, nil
}
