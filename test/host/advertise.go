package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv6"

	"ovn-k8s/test/probe"
)

// Advertise sends router advertisements (RFC 4861, section 4.2) on the hosts' network until stop is called. netns is
// the fabric's network namespace. They announce a prefix and a default router, both valid for lifetime.
func Advertise(netns string, prefix netip.Prefix, interval, lifetime time.Duration) (stop func(), err error) {
	var conn net.PacketConn
	var nic *net.Interface
	err = probe.In(netns, func() (err error) {
		if nic, err = net.InterfaceByName(underlay.bridge); err == nil {
			conn, err = net.ListenPacket("ip6:ipv6-icmp", "::")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("advertising a router: %w", err)
	}
	message := advertisement(prefix, uint16(lifetime/time.Second))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(interval); ; {
			// Lost messages are sent again after interval.
			_, _ = ipv6.NewPacketConn(conn).WriteTo(message, &ipv6.ControlMessage{HopLimit: 255, IfIndex: nic.Index}, &net.IPAddr{IP: net.IPv6linklocalallnodes})
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
	return func() { cancel(); <-done; _ = conn.Close() }, nil
}

// advertisement is a router advertisement. The kernel computes the checksum.
func advertisement(prefix netip.Prefix, seconds uint16) []byte {
	message := []byte{134, 0, 0, 0, 64, 0}
	message = binary.BigEndian.AppendUint16(message, seconds)
	message = append(message, make([]byte, 8)...)
	message = append(message, 3, 4, byte(prefix.Bits()), 0xc0) // on link, autonomous
	message = binary.BigEndian.AppendUint32(message, uint32(seconds))
	message = binary.BigEndian.AppendUint32(message, uint32(seconds))
	return append(append(message, 0, 0, 0, 0), prefix.Addr().AsSlice()...)
}
