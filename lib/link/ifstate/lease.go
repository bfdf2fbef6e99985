package ifstate

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Lease is the lifetime of an address from DHCP, as the kernel knows it.
type Lease struct {
	Left time.Duration // until the address ends
	Age  time.Duration // since a program has set the lifetime, when the record was read
	// Renewed: a program has set the lifetime since the address was added.
	Renewed bool
}

// renewal is the least time, in hundredths of a second, between an address and its renewal: Add sets IPv6 addresses twice.
const renewal = 100

// Lease returns the lease of an address record that was just read. Only addresses from DHCP have one: those of IPv4 that end, and
// single ones of IPv6 (RFC 8415). The kernel renews others of IPv6, by router advertisements.
func (r Record) Lease() (l Lease, ok bool) {
	info := r.attr(unix.IFA_CACHEINFO) // struct ifa_cacheinfo: preferred, valid, in s; cstamp, tstamp, in hundredths since the boot
	if r.Kind != Address || r.Lasts() || len(info) < 16 || r.Is6() && !r.Prefix().IsSingleIP() {
		return Lease{}, false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Lease{}, false
	}
	added, set := native.Uint32(info[8:]), native.Uint32(info[12:])
	age := int32(uint32(now.Nano()/int64(10*time.Millisecond)) - set) // the kernel's numbers overflow, too
	return Lease{
		Left: time.Duration(native.Uint32(info[4:])) * time.Second, Age: time.Duration(max(age, 0)) * 10 * time.Millisecond,
		Renewed: int32(set-added) > renewal,
	}, true
}

// Addresses returns the addresses of an interface.
func Addresses(i Interface) ([]Record, error) {
	all, err := addressesOf(i)
	if err != nil {
		return nil, fmt.Errorf("looking at interface %s: %w", i.Name, err)
	}
	return all, nil
}
