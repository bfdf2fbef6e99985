package ipnet

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseAddr parses an address in an object of Kubernetes, without a zone. Like the API server it accepts former spellings:
// decimal numbers with leading zeros, and IPv4 addresses mapped to IPv6. It returns these as IPv4.
func ParseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(withoutZeros(s))
	if err == nil && a.Zone() != "" {
		err = fmt.Errorf("%q has a zone", s)
	}
	return a.Unmap(), err
}

// ParsePrefix parses a CIDR in an object of Kubernetes like ParseAddr, and sets its host bits to zero.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(withoutZeros(s))
	if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), err
}

// withoutZeros removes leading zeros of numbers.
func withoutZeros(s string) string {
	var out strings.Builder
	leading := true
	for i := range len(s) {
		if leading && s[i] == '0' && i+1 < len(s) && strings.IndexByte("0123456789abcdefABCDEF", s[i+1]) >= 0 {
			continue
		}
		out.WriteByte(s[i])
		leading = s[i] == '.' || s[i] == ':' || s[i] == '/'
	}
	return out.String()
}
