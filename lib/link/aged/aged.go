// Package aged lists the addresses of this host by age, for the choice of a gateway's.
package aged

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/desired/hostgateway"
	"ovn-k8s/lib/link"
)

// Addresses returns those of link.Addresses, the oldest ones of each family of an interface first.
func Addresses() (map[string][]hostgateway.Address, error) {
	all, err := link.Entries()
	if err != nil {
		return nil, err
	}
	out := map[string][]hostgateway.Address{}
	for name, list := range all {
		var young []hostgateway.Address // the kernel lists those of IPv6 in this order
		for _, e := range list {
			if a := Address(e.Prefix, e.Flags); a.Addr().Is4() {
				out[name] = append(out[name], a)
			} else {
				young = append(young, a)
			}
		}
		slices.Reverse(young)
		out[name] = append(out[name], young...)
	}
	return out, nil
}

// Address returns an address with the kernel's flags. For IPv4, the bit of temporary ones has another meaning.
func Address(p netip.Prefix, flags uint32) hostgateway.Address {
	is := func(flag uint32) bool { return p.Addr().Is6() && flags&flag != 0 }
	return hostgateway.Address{Prefix: p, Temporary: is(unix.IFA_F_TEMPORARY), Deprecated: is(unix.IFA_F_DEPRECATED)}
}
