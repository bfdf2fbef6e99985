package ipnet

import "net/netip"

// Unusable returns the reason why an address cannot be that of a host, a Service or an endpoint, or "".
func Unusable(a netip.Addr) string {
	switch {
	case a.Zone() != "":
		return "an address with a zone"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsMulticast():
		return "a multicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	}
	return ""
}
