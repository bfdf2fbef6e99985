package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses returns the addresses of all interfaces by name, with their prefix lengths, without link-local addresses
// and those that may be a duplicate of another host's.
func Addresses() (map[string][]netip.Prefix, error) {
	all, err := Entries()
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Prefix{}
	for name, list := range all {
		for _, a := range list {
			out[name] = append(out[name], a.Prefix)
		}
	}
	return out, nil
}

// An Entry is an address with the kernel's flags.
type Entry struct {
	netip.Prefix
	Flags uint32 // unix.IFA_F_TEMPORARY, for example
}

// Entries returns those of Addresses, in the kernel's order.
func Entries() (map[string][]Entry, error) {
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
	out := map[string][]Entry{}
	for _, a := range all {
		if ip := prefix(a.IPNet); !ip.Addr().IsLinkLocalUnicast() && usable(a) {
			out[names[a.LinkIndex]] = append(out[names[a.LinkIndex]], Entry{ip, uint32(a.Flags)})
		}
	}
	return out, nil
}

// FollowAddresses calls changed once it follows, and after each change of an address of this host, including the end of
// duplicate address detection, until it fails, or ctx ends. changed must not block.
func FollowAddresses(ctx context.Context, changed func() error) error {
	return lookAtAddresses(ctx, func() (bool, error) { return false, changed() })
}

// AwaitDAD waits until duplicate address detection has ended for all addresses of an interface, except link-local
// ones, or until ctx ends. Without a carrier it does not end.
func AwaitDAD(ctx context.Context, name string) error {
	return lookAtAddresses(ctx, func() (bool, error) {
		all, err := addresses(name)
		return !slices.ContainsFunc(all, func(a netlink.Addr) bool {
			return !usable(a) && a.Flags&unix.IFA_F_DADFAILED == 0 && !a.IP.IsLinkLocalUnicast()
		}), err
	})
}

// lookAtAddresses calls look at once, and after each change of an address of this host, until it is done or fails, or
// ctx ends.
func lookAtAddresses(ctx context.Context, look func() (done bool, err error)) error {
	updates := make(chan netlink.AddrUpdate)
	done := make(chan struct{})
	if err := netlink.AddrSubscribe(updates, done); err != nil {
		return fmt.Errorf("following addresses: %w", err)
	}
	defer Unsubscribe(updates, done)
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok {
				return fmt.Errorf("following addresses: the kernel ended it")
			}
		}
	}
}

// HasIPv6 reports whether the kernel has IPv6: not with ipv6.disable=1.
func HasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf")
	return err == nil
}

// NICWith returns the interface with an address, and its MTU in bytes, or "".
func NICWith(a netip.Addr) (name string, mtu int, err error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return "", 0, fmt.Errorf("listing interfaces: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return "", 0, fmt.Errorf("listing addresses: %w", err)
	}
	for _, has := range addrs {
		if prefix(has.IPNet).Addr() != a {
			continue
		}
		for _, l := range links {
			if l.Attrs().Index == has.LinkIndex {
				return l.Attrs().Name, l.Attrs().MTU, nil
			}
		}
	}
	return "", 0, nil
}

// MTU returns the MTU of an interface in bytes, 0 if there is none.
func MTU(name string) (int, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return 0, err
	}
	return l.Attrs().MTU, nil
}

// FollowLinks calls changed once it follows, and whenever an interface of this host changes, until ctx ends. changed must
// not block.
func FollowLinks(ctx context.Context, changed func()) error {
	updates := make(chan netlink.LinkUpdate)
	done := make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		return fmt.Errorf("following interfaces: %w", err)
	}
	defer Unsubscribe(updates, done)
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok {
				return errors.New("following interfaces: the kernel ended it")
			}
			changed()
		}
	}
}

// Unsubscribe ends a subscription of package netlink, and waits for its goroutine, which sends updates without regard to
// done.
func Unsubscribe[U any](updates <-chan U, done chan<- struct{}) {
	close(done)
	for range updates {
	}
}
