package policy

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/ipnet"
)

// parseBlock returns the prefixes of an ipBlock: its CIDR without the exceptions.
// Former spellings are read as API servers do for compatibility: see ipnet.ParsePrefix.
func parseBlock(b *networkingv1.IPBlock) ([]netip.Prefix, error) {
	cidr, err := parseCIDR(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("ipBlock.cidr: %w", err)
	}
	excepts := make([]netip.Prefix, 0, len(b.Except))
	for i, text := range b.Except {
		except, err := parseCIDR(text)
		if err != nil {
			return nil, fmt.Errorf("ipBlock.except[%d]: %w", i, err)
		}
		if except.Bits() <= cidr.Bits() || !cidr.Contains(except.Addr()) {
			return nil, fmt.Errorf("ipBlock.except[%d]: %q is not a part of cidr %q: give a longer prefix within it", i, text, b.CIDR)
		}
		excepts = append(excepts, except)
	}
	left := subtract(nil, cidr, excepts)
	if len(left) > maxValues {
		return nil, fmt.Errorf("ipBlock.except: without them %q falls into more than %d subnets: give fewer or shorter prefixes", b.CIDR, maxValues)
	}
	return left, nil
}

func parseCIDR(s string) (netip.Prefix, error) {
	p, err := ipnet.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a CIDR: write it like 10.0.0.0/8 or fd00::/64", s)
	}
	return p, nil
}

// subtract appends p without excepts to out, and stops above maxValues prefixes.
// OVN cannot match "in this list and not in that one" without an explosion of flows.
func subtract(out []netip.Prefix, p netip.Prefix, excepts []netip.Prefix) []netip.Prefix {
	if len(out) > maxValues {
		return out
	}
	var within []netip.Prefix
	for _, e := range excepts {
		if e.Overlaps(p) {
			if e.Bits() <= p.Bits() {
				return out
			}
			within = append(within, e)
		}
	}
	if len(within) == 0 {
		return append(out, p)
	}
	low, high := halves(p)
	return subtract(subtract(out, low, within), high, within)
}

// halves splits a prefix into its two halves.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	b := p.Masked().Addr().AsSlice()
	low = netip.PrefixFrom(p.Masked().Addr(), p.Bits()+1)
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(b)
	return low, netip.PrefixFrom(a, p.Bits()+1)
}
