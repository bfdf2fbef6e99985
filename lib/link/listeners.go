package link

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Listener is a port at which a program of this host takes connections or
// datagrams.
type Listener struct {
	Protocol string // "tcp" or "udp"
	Port     uint16
}

// Listeners lists the ports at which programs of this host listen at any of its
// addresses but loopback ones.
func Listeners() (map[Listener]bool, error) {
	out := map[Listener]bool{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		tcp, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("listing sockets: %w", err)
		}
		udp, err := netlink.SocketDiagUDP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("listing sockets: %w", err)
		}
		for _, s := range tcp {
			if s.State == netlink.TCP_LISTEN && !loopback(s) {
				out[Listener{"tcp", s.ID.SourcePort}] = true
			}
		}
		for _, s := range udp {
			if s.ID.DestinationPort == 0 && !loopback(s) {
				out[Listener{"udp", s.ID.SourcePort}] = true
			}
		}
	}
	return out, nil
}

func loopback(s *netlink.Socket) bool {
	a, ok := netip.AddrFromSlice(s.ID.Source)
	return ok && a.Unmap().IsLoopback()
}
