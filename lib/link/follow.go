package link

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// Addresses returns the addresses of all interfaces by their names. Those that
// are valid on the link only are left out.
func Addresses() (map[string][]netip.Addr, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	all, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	out := map[string][]netip.Addr{}
	for _, a := range all {
		if ip := prefix(a.IPNet).Addr(); !ip.IsLinkLocalUnicast() {
			out[names[a.LinkIndex]] = append(out[names[a.LinkIndex]], ip)
		}
	}
	return out, nil
}

// Subnets are those in which an interface has addresses, none if there is no such
// interface.
func Subnets(name string) ([]netip.Prefix, error) {
	all, err := addresses(name)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, a := range all {
		if p := prefix(a.IPNet).Masked(); !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p)
		}
	}
	return out, nil
}

// FollowAddresses calls changed whenever an address of this host comes or goes,
// until ctx ends. changed must not block.
func FollowAddresses(ctx context.Context, changed func()) error {
	updates := make(chan netlink.AddrUpdate)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribe(updates, done); err != nil {
		return fmt.Errorf("following addresses: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok {
				return fmt.Errorf("following addresses: the kernel ended it")
			}
			changed()
		}
	}
}

// HasIPv6 reports whether the kernel has IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}
