package garp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Ping returns nil when an ICMP echo request to an address is answered before ctx ends. The kernel chooses the route
// for each request: it may come later.
func Ping(ctx context.Context, to netip.Addr) error {
	id, seq := uint16(os.Getpid()), uint16(0)
	return repeat(ctx, func(ctx context.Context) error {
		seq++
		return ping(ctx, to, id, seq)
	})
}

// repeat calls ask every askInterval, or at its end if that is later, until it returns nil or ctx ends. It returns the
// last error, if possible one from before the end.
func repeat(ctx context.Context, ask func(context.Context) error) (last error) {
	for {
		next := time.After(askInterval)
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-next:
		}
	}
}

// ping sends one request and waits for an answer, also to an earlier one.
func ping(ctx context.Context, to netip.Addr, id, seq uint16) error {
	network := "ip4:icmp"
	if to.Is6() {
		network = "ip6:ipv6-icmp"
	}
	conn, err := net.DialIP(network, nil, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()})
	if err != nil {
		return fmt.Errorf("asking %v: %w", to, err)
	}
	defer conn.Close()
	request, err := echo(to, id, seq)
	if err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("asking %v: %w", to, err)
	}
	if !answered(ctx, conn, id) {
		return fmt.Errorf("%v %w", to, ErrSilent)
	}
	return nil
}

// echo returns the ICMP message of an echo request. The kernel fills in the checksum of ICMPv6, since it covers the
// addresses.
func echo(to netip.Addr, id, seq uint16) ([]byte, error) {
	if to.Is4() {
		return serialize(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: id, Seq: seq})
	}
	head := []byte{layers.ICMPv6TypeEchoRequest, 0, 0, 0}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, gopacket.Payload(head), &layers.ICMPv6Echo{Identifier: id, SeqNumber: seq})
	return buf.Bytes(), err
}

// answered waits askInterval for an echo reply. The socket also receives replies to other processes.
func answered(ctx context.Context, conn *net.IPConn, id uint16) bool {
	until := time.Now().Add(askInterval)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := conn.SetReadDeadline(until); err != nil {
		return false
	}
	buf := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFromIP(buf) // Read would include the IPv4 header
		if err != nil {                   // the deadline, or an ICMP error
			return false
		}
		reply := n >= 8 && (buf[0] == layers.ICMPv4TypeEchoReply || buf[0] == layers.ICMPv6TypeEchoReply)
		if reply && uint16(buf[4])<<8|uint16(buf[5]) == id {
			return true
		}
	}
}
