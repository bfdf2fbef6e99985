package nodesubnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"ovn-k8s/lib/ipnet"
)

// A pool has the free subnets of one range. Released subnets are reused last.
type pool struct {
	Range
	next uint64 // number of the subnet to try first
	full bool   // since the last release
}

// maxSubnets bounds the subnets used of one range.
const maxSubnets = 1 << 32

// size is the number of subnets.
func (p *pool) size() uint64 { return min(maxSubnets, uint64(1)<<min(63, p.Length-p.CIDR.Bits())) }

// nth is subnet n of the range. It inverts number.
func (p *pool) nth(n uint64) netip.Prefix {
	b := p.CIDR.Addr().As16()
	if p.CIDR.Addr().Is4() {
		binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])+uint32(n<<(32-p.Length)))
		return netip.PrefixFrom(netip.AddrFrom16(b).Unmap(), p.Length)
	}
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+n) // the length is 64
	return netip.PrefixFrom(netip.AddrFrom16(b), p.Length)
}

// number is the number of the subnet of the range with address a, which is in the range.
func (p *pool) number(a netip.Addr) uint64 {
	b, first := a.As16(), p.CIDR.Addr().As16()
	if a.Is4() {
		return uint64(binary.BigEndian.Uint32(b[12:])-binary.BigEndian.Uint32(first[12:])) >> (32 - p.Length)
	}
	return binary.BigEndian.Uint64(b[:8]) - binary.BigEndian.Uint64(first[:8])
}

// end is the number of the first subnet after those that overlap s, which is in the range.
func (p *pool) end(s netip.Prefix) uint64 {
	n := p.number(s.Addr())
	if s.Bits() >= p.Length {
		return n + 1
	}
	return n + uint64(1)<<min(63, p.Length-s.Bits())
}

// find returns the next subnet that overlaps none of all, and false if there is none. The next call returns the same
// one, unless it is held or passed.
func (p *pool) find(all ...held) (netip.Prefix, bool) {
	size := p.size()
	for n, seen := p.next%size, uint64(0); !p.full && seen < size; {
		s := p.nth(n)
		end := uint64(0)
		for _, h := range all {
			if blocked, is := h.overlapping(s); is {
				end = max(end, p.end(blocked))
			}
		}
		if end == 0 {
			p.next = n
			return s, true
		}
		seen += end - n
		n = end % size
	}
	return netip.Prefix{}, false
}

// pass makes find continue after s, a subnet of the range.
func (p *pool) pass(s netip.Prefix) { p.next = p.end(s) }

// contains reports whether s lies in the range.
func (p *pool) contains(s netip.Prefix) bool {
	return ipnet.Within([]netip.Prefix{s}, []netip.Prefix{p.CIDR})
}

// held are sorted subnets without overlaps.
type held []netip.Prefix

// overlapping returns the lowest one that overlaps s.
func (h held) overlapping(s netip.Prefix) (netip.Prefix, bool) {
	i := h.find(s)
	if i > 0 && h[i-1].Overlaps(s) {
		return h[i-1], true
	}
	if i < len(h) && h[i].Overlaps(s) {
		return h[i], true
	}
	return netip.Prefix{}, false
}

// with adds s, which overlaps none of h.
func (h held) with(s netip.Prefix) held { return slices.Insert(h, h.find(s), s) }

// without removes s.
func (h held) without(s netip.Prefix) held {
	if i := h.find(s); i < len(h) && h[i] == s {
		return slices.Delete(h, i, i+1)
	}
	return h
}

// find returns the position of the first subnet at or above the address of s.
func (h held) find(s netip.Prefix) int {
	i, _ := slices.BinarySearchFunc(h, s, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return i
}
