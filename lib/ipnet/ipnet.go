// Package ipnet does address arithmetic on net/netip: the nth address of a subnet, a MAC from an address, lists of
// subnets of both families.
package ipnet

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Nth returns the address n above the first address of p (n = 0). It returns false if p has no such address.
func Nth(p netip.Prefix, n uint64) (netip.Addr, bool) {
	high, low := halves(p.Masked().Addr())
	low, carry := bits.Add64(low, n, 0)
	high, carry = bits.Add64(high, 0, carry)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	a := netip.AddrFrom16(b)
	if p.Addr().Is4() {
		a = a.Unmap()
	}
	return a, carry == 0 && p.Contains(a)
}

// halves returns the first and the last 64 bits of an address. An IPv4 address is the last 32 of them.
func halves(a netip.Addr) (high, low uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// Offset is the inverse of Nth: how far a is above the first address of p. It returns false if a is outside p, or
// further than 2^64-1.
func Offset(p netip.Prefix, a netip.Addr) (uint64, bool) {
	if !p.Contains(a) {
		return 0, false
	}
	high, low := halves(a)
	firstHigh, firstLow := halves(p.Masked().Addr())
	low, borrow := bits.Sub64(low, firstLow, 0)
	return low, high-firstHigh-borrow == 0
}

// PodMAC is the MAC of a port with address a: 0a:58 and the low 32 bits of a. It is unique within a switch.
func PodMAC(a netip.Addr) string {
	b := a.As16()
	return net.HardwareAddr{0x0a, 0x58, b[12], b[13], b[14], b[15]}.String()
}

// UnicastMAC reports whether s is a unicast MAC, as in "0a:58:c0:a8:02:03".
func UnicastMAC(s string) bool {
	mac, err := net.ParseMAC(s)
	return err == nil && len(mac) == 6 && strings.Count(s, ":") == 5 && mac[0]&1 == 0
}

// RouterMAC is the MAC of the router port name: 00:00:00 and three octets of the name's hash, in upper case for
// compatibility.
func RouterMAC(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("00:00:00:%02X:%02X:%02X", sum[0], sum[1], sum[2])
}

// ParseSubnets parses a comma-separated list of at most one IPv4 and one IPv6 subnet, and returns IPv4 first. Host
// bits and subnets with fewer than minHosts usable addresses are errors.
func ParseSubnets(s string, minHosts uint64) ([]netip.Prefix, error) {
	return parseSubnets(s, minHosts, func(p, q netip.Prefix) error {
		if SameFamily(p.Addr(), q.Addr()) {
			return fmt.Errorf("%q has two subnets of one family: give at most one IPv4 and one IPv6 subnet", s)
		}
		return nil
	})
}

// ParseDisjoint is ParseSubnets for any number of subnets of a family, which must not overlap. Subnets of one family
// keep their order.
func ParseDisjoint(s string, minHosts uint64) ([]netip.Prefix, error) {
	return parseSubnets(s, minHosts, func(p, q netip.Prefix) error {
		if p.Overlaps(q) {
			return fmt.Errorf("subnets %s and %s overlap: give each address once", q, p)
		}
		return nil
	})
}

// parseSubnets parses a list of subnets without a conflict between any two of them. It returns IPv4 first.
func parseSubnets(s string, minHosts uint64, conflict func(p, former netip.Prefix) error) ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	var errs []error
	for part := range strings.SplitSeq(s, ",") {
		p, err := parseSubnet(strings.TrimSpace(part), minHosts)
		for i := 0; err == nil && i < len(subnets); i++ {
			err = conflict(p, subnets[i])
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		subnets = append(subnets, p)
	}
	slices.SortStableFunc(subnets, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	return subnets, errors.Join(errs...)
}

func parseSubnet(s string, minHosts uint64) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a subnet: write it like 192.168.1.0/24 or fd01::/64", s)
	}
	if p.Addr().Is4In6() {
		return p, fmt.Errorf("%q is an IPv4-mapped subnet: write it as IPv4", s)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%q has bits set beyond its prefix length: did you mean %s?", s, p.Masked())
	}
	if Hosts(p) < minHosts {
		return p, fmt.Errorf("%q is too small: it has %d usable addresses, and %d are needed", s, Hosts(p), minHosts)
	}
	return p, nil
}

// maxHosts bounds the addresses used of one subnet, so that their low 32 bits are unique (see PodMAC).
const maxHosts = 1 << 24

// Hosts is the number of addresses of p for hosts: above the first and, for IPv4, below the broadcast address; 2^24
// at most. Host number n, from 1, has the address Nth(p, n).
func Hosts(p netip.Prefix) uint64 {
	bits := p.Addr().BitLen() - p.Bits()
	if bits > 24 {
		return maxHosts
	}
	n := uint64(1)<<bits - 1
	if p.Addr().Is4() && n > 0 {
		n--
	}
	return n
}

// Families are an address of each family, unspecified: IPv4 first.
func Families() [2]netip.Addr { return [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} }

// Family is the index of an address's family in Families.
func Family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// OfFamily returns the subnets of the family with an index in Families.
func OfFamily(subnets []netip.Prefix, f int) (out []netip.Prefix) {
	for _, s := range subnets {
		if Family(s.Addr()) == f {
			out = append(out, s)
		}
	}
	return out
}

// SameFamily reports whether both are IPv4 or both are IPv6.
func SameFamily(a, b netip.Addr) bool { return a.BitLen() == b.BitLen() }

// Join formats a list for people and databases, separated by commas.
func Join[T fmt.Stringer](list []T) string {
	s := make([]string, len(list))
	for i, v := range list {
		s[i] = v.String()
	}
	return strings.Join(s, ",")
}

// OnePerFamily reports whether no two subnets are of one family.
func OnePerFamily(subnets []netip.Prefix) bool {
	for f := range Families() {
		if len(OfFamily(subnets, f)) > 1 {
			return false
		}
	}
	return true
}

// Within reports whether every subnet of inner lies in one of outer.
func Within(inner, outer []netip.Prefix) bool {
	for _, in := range inner {
		if !slices.ContainsFunc(outer, func(out netip.Prefix) bool { return out.Bits() <= in.Bits() && out.Contains(in.Addr()) }) {
			return false
		}
	}
	return true
}

// Overlap returns the first overlapping pair of subnets of a and b.
func Overlap(a, b []netip.Prefix) (netip.Prefix, netip.Prefix, bool) {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return netip.Prefix{}, netip.Prefix{}, false
}

// Single is the subnet of one address.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
