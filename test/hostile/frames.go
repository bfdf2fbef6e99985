package hostile

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// SFlow returns a UDP datagram to port 6343 for which gopacket 1.1.19 allocates 16 GiB: its
// path of autonomous systems claims 2^32-1 members. The frame has 158 bytes.
func SFlow() []byte {
	words := []uint32{
		5, 1, 0x0a000001, 0, 1, 1, 1, // version, IPv4, agent, sub-agent, sequence, uptime, samples
		1, 88, 1, 0, 1, 1, 0, 0, 0, 1, // flow sample with one record
		1003, 48, 1, 0x0a000001, 0, 0, 0, 1, 1, 0xffffffff, 0, 0, // extended gateway, see gopacket's sflow.go
	}
	var payload []byte
	for _, w := range words {
		payload = binary.BigEndian.AppendUint32(payload, w)
	}
	return udp(6343, payload)
}

// Frames draws n frames. They include SFlow, and frames of each EtherType, IP protocol,
// and UDP and TCP port decoded by gopacket.
func Frames(n int, seed uint64) [][]byte {
	r := rand.New(rand.NewPCG(seed, 0))
	makers := every()
	all := [][]byte{SFlow()}
	for len(all) < n {
		make := makers[(len(all)-1)%len(makers)]
		all = append(all, spoil(r, make(contents(r))))
	}
	return all[:n]
}

// A maker puts contents into a frame.
type maker func(contents []byte) []byte

// every returns a maker for each layer type that gopacket decodes by itself.
func every() []maker {
	var all []maker
	for value := range 1 << 16 {
		if t := layers.EthernetType(value).LayerType(); t != 0 && t != gopacket.LayerTypeDecodeFailure {
			all = append(all, func(b []byte) []byte { return ethernet(uint16(value), b) })
		}
		if t := layers.UDPPort(value).LayerType(); t != 0 && t != gopacket.LayerTypePayload {
			all = append(all, func(b []byte) []byte { return udp(uint16(value), b) })
		}
		if t := layers.TCPPort(value).LayerType(); t != 0 && t != gopacket.LayerTypePayload {
			all = append(all, func(b []byte) []byte { return tcp(uint16(value), b) })
		}
	}
	for value := range 1 << 8 {
		all = append(all, func(b []byte) []byte { return ipv4(byte(value), b) }, func(b []byte) []byte { return ipv6(byte(value), b) },
			func(b []byte) []byte { return ipv6(58, append([]byte{byte(value), 0, 0, 0}, b...)) },
			func(b []byte) []byte {
				return append([]byte{3: byte(value), 11: byte(value), 12: 0, 13: byte(len(b))}, b...)
			})
	}
	return all
}

// contents draws up to 300 bytes: noise, or the extremes of length fields.
func contents(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(300))
	for n := range b {
		b[n] = []byte{0, 0, 1, 0xff, 0xff, 0x7f, byte(r.Uint32()), byte(r.Uint32())}[r.IntN(8)]
	}
	return b
}

// spoil changes one frame of three, cuts one, and leaves one. Destinations vary.
func spoil(r *rand.Rand, frame []byte) []byte {
	frame = slices.Clone(frame)
	switch r.IntN(3) {
	case 0:
		for range 1 + r.IntN(4) {
			frame[r.IntN(len(frame))] = byte(r.Uint32())
		}
	case 1:
		frame = frame[:max(14, r.IntN(len(frame)+1))]
	}
	if r.IntN(2) == 0 {
		copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
	return frame
}

func ethernet(etherType uint16, b []byte) []byte {
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9}, byte(etherType>>8), byte(etherType))
	return append(frame, b...)
}

func ipv4(protocol byte, b []byte) []byte {
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(b)))
	copy(h[12:], []byte{10, 0, 0, 9, 10, 0, 0, 1})
	var sum uint32
	for n := 0; n < len(h); n += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[n:]))
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum>>16+sum&0xffff))
	return ethernet(0x0800, append(h, b...))
}

func ipv6(next byte, b []byte) []byte {
	h := make([]byte, 40)
	h[0], h[6], h[7], h[8], h[23], h[24], h[39] = 0x60, next, 255, 0xfe, 9, 0xfe, 1
	h[9], h[25] = 0x80, 0x80
	binary.BigEndian.PutUint16(h[4:], uint16(len(b)))
	return ethernet(0x86dd, append(h, b...))
}

func udp(port uint16, b []byte) []byte {
	h := make([]byte, 8)
	binary.BigEndian.PutUint16(h, port)
	binary.BigEndian.PutUint16(h[2:], port)
	binary.BigEndian.PutUint16(h[4:], uint16(8+len(b)))
	return ipv4(17, append(h, b...))
}

func tcp(port uint16, b []byte) []byte {
	h := make([]byte, 20)
	binary.BigEndian.PutUint16(h, port)
	binary.BigEndian.PutUint16(h[2:], port)
	h[12], h[13] = 5<<4, 0x18
	return ipv4(6, append(h, b...))
}
