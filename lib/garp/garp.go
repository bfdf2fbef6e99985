// Package garp announces addresses to the neighbours of an interface by gratuitous ARP (RFC 5227 section 2.3) and
// unsolicited neighbour advertisements (RFC 4861 section 7.2.6), and probes addresses by ARP requests, neighbour
// solicitations, ICMP and TCP.
//
// It neither reads nor changes the kernel's neighbour tables. It acts in the network namespace of the calling thread.
package garp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

// An Interface is the interface that sends the frames.
type Interface struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	VLAN  int // tag for Announce and Inquire, 0: none
}

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	nobody    = net.HardwareAddr{0, 0, 0, 0, 0, 0}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// Announce tells the neighbours that addresses are at i. Neighbours update an outdated MAC, switches the port.
func Announce(i Interface, addresses []netip.Addr) error {
	s, err := open(i, sendOnly)
	if err != nil {
		return err
	}
	defer s.close()
	for _, a := range addresses {
		frame, err := Announcement(i.MAC, a)
		if err == nil {
			err = s.send(tagged(frame, i.VLAN))
		}
		if err != nil {
			return fmt.Errorf("announcing %v on %s: %w", a, i.Name, err)
		}
	}
	return nil
}

// Announcement returns the frame announcing an address.
func Announcement(mac net.HardwareAddr, a netip.Addr) ([]byte, error) {
	if a.Is4() {
		return arp(mac, a, a)
	}
	na := &layers.ICMPv6NeighborAdvertisement{
		Flags: 0x20, TargetAddress: a.AsSlice(), // override
		Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac}},
	}
	return icmpv6(mac, a, allNodes, layers.ICMPv6TypeNeighborAdvertisement, na)
}

// tagged adds a VLAN tag (IEEE 802.1Q), unless vlan is 0.
func tagged(frame []byte, vlan int) []byte {
	if vlan == 0 {
		return frame
	}
	const macs = 12
	tag := binary.BigEndian.AppendUint16([]byte{0x81, 0}, uint16(vlan))
	return slices.Concat(frame[:macs], tag, frame[macs:])
}

// question returns the ARP request or neighbour solicitation for target.
func question(mac net.HardwareAddr, from, target netip.Addr) ([]byte, error) {
	if target.Is4() {
		return arp(mac, from, target)
	}
	ns := &layers.ICMPv6NeighborSolicitation{
		TargetAddress: target.AsSlice(),
		Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac}},
	}
	return icmpv6(mac, from, solicitedNode(target), layers.ICMPv6TypeNeighborSolicitation, ns)
}

// solicitedNode is the multicast group of an address (RFC 4291 section 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	b := netip.MustParseAddr("ff02::1:ff00:0").As16()
	last := a.As16()
	copy(b[13:], last[13:])
	return netip.AddrFrom16(b)
}

func arp(mac net.HardwareAddr, from, target netip.Addr) ([]byte, error) {
	return serialize(
		&layers.Ethernet{SrcMAC: mac, DstMAC: broadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation:       layers.ARPRequest,
			SourceHwAddress: mac, SourceProtAddress: from.AsSlice(),
			DstHwAddress: nobody, DstProtAddress: target.AsSlice(),
		})
}

func icmpv6(mac net.HardwareAddr, from, to netip.Addr, kind uint8, body gopacket.SerializableLayer) ([]byte, error) {
	group := to.As16()
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	dst := net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]}
	return serialize(&layers.Ethernet{SrcMAC: mac, DstMAC: dst, EthernetType: layers.EthernetTypeIPv6}, ip, icmp, body)
}

func serialize(all ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		return nil, fmt.Errorf("composing a frame: %w", err)
	}
	return buf.Bytes(), nil
}

// askInterval is the time before a question is repeated. RetransTimer of RFC 4861 is a second, but neighbours answer
// within a millisecond.
const askInterval = 200 * time.Millisecond

// ErrSilent means that the address does not answer.
var ErrSilent = errors.New("does not answer")

// A Question asks for the MAC of Target, from the host's address From of the same family.
type Question struct{ From, Target netip.Addr }

// Ask asks all questions at once and repeats the unanswered ones. It returns when all are answered, or the unanswered
// ones when ctx ends.
func Ask(ctx context.Context, i Interface, questions []Question) (silent []Question, err error) {
	if len(questions) == 0 {
		return nil, nil
	}
	sockets, err := openAll(i, questions)
	defer func() {
		for _, s := range sockets {
			s.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	d := newDecoder()
	silent = slices.Clone(questions)
	for ctx.Err() == nil && len(silent) > 0 {
		if err := ask(sockets[0], i, silent); err != nil {
			return nil, err
		}
		_, err := receive(ctx, sockets, time.Now().Add(askInterval), func(frame []byte) bool {
			if who, ok := d.answer(frame); ok {
				silent = slices.DeleteFunc(silent, func(q Question) bool { return q.Target.WithZone("") == who })
			}
			return len(silent) == 0
		})
		if err != nil {
			return nil, err
		}
	}
	return silent, nil
}

// Inquire asks all questions once and reads no answers: they are for a router of OVN that has the address and the MAC
// they are sent to.
func Inquire(i Interface, questions []Question) error {
	s, err := open(i, sendOnly)
	if err != nil {
		return err
	}
	defer s.close()
	return ask(s, i, questions)
}

// openAll opens a socket for each protocol of the questions.
func openAll(i Interface, questions []Question) (sockets []*socket, err error) {
	for _, p := range []protocol{arpReplies, advertisements} {
		is4 := p.etherType == unix.ETH_P_ARP
		if !slices.ContainsFunc(questions, func(q Question) bool { return q.Target.Is4() == is4 }) {
			continue
		}
		s, err := open(i, p)
		if err != nil {
			return sockets, err
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

func ask(s *socket, i Interface, questions []Question) error {
	for _, q := range questions {
		frame, err := question(i.MAC, q.From, q.Target)
		if err == nil {
			err = s.send(tagged(frame, i.VLAN))
		}
		if err != nil && !errors.Is(err, unix.ENETDOWN) {
			return fmt.Errorf("asking for %v on %s: %w", q.Target, i.Name, err)
		}
	}
	return nil
}
