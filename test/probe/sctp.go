package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialSCTP connects by SCTP (sctp(7), one-to-one style). Package net takes the socket
// for one of TCP, which is right for reading, writing and addresses.
func (p Probe) dialSCTP(ctx context.Context) (net.Conn, error) {
	fd, err := socketSCTP(p.Address.Addr())
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close() // FileConn duplicates it
	if p.Source.IsValid() {
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.Source, 0))); err != nil {
			return nil, fmt.Errorf("bind: %w", err)
		}
	}
	if err = unix.Connect(fd, sockaddr(p.Address)); errors.Is(err, unix.EINPROGRESS) {
		err = connected(ctx, fd)
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return net.FileConn(f)
}

// connected waits for the end of a connect(2).
func connected(ctx context.Context, fd int) error {
	for {
		deadline, _ := ctx.Deadline()
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR) || n == 0 && err == nil:
			continue
		case err != nil:
			return err
		}
		status, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && status != 0 {
			err = unix.Errno(status)
		}
		return err
	}
}

// listenSCTP listens on an SCTP port of all addresses. A socket bound to none of a
// host's many addresses would answer from the one preferred by the route, and not
// from the one asked: behind address translation the client ignores such answers. So
// each has a socket. Without the kernel's module there is no listener.
func listenSCTP(port int) (all []net.Listener, err error) {
	addresses, err := sctpAddresses()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		l, err := listenSCTPAt(Address(a, port))
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return nil, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, l)
	}
	return all, nil
}

// sctpAddresses are the addresses to listen on: those of this thread's network
// namespace if it has several of one family, or else "::".
func sctpAddresses() (several []netip.Addr, err error) {
	prefixes, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	count := map[bool]int{}
	for _, p := range prefixes {
		a, ok := netip.AddrFromSlice(p.(*net.IPNet).IP)
		a = a.Unmap()
		if !ok || a.IsLinkLocalUnicast() {
			continue
		}
		several = append(several, a)
		if !a.IsLoopback() {
			count[a.Is4()]++
		}
	}
	if max(count[true], count[false]) < 2 {
		return []netip.Addr{netip.IPv6Unspecified()}, nil
	}
	return several, nil
}

func listenSCTPAt(at netip.AddrPort) (net.Listener, error) {
	fd, err := socketSCTP(at.Addr())
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close() // FileListener duplicates it
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return nil, fmt.Errorf("binding %v by SCTP: %w", at, err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		return nil, err
	}
	return net.FileListener(f)
}

// socketSCTP creates a non-blocking socket of the family of an address.
func socketSCTP(like netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if like.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
