package ifstate

import (
	"bytes"
	"errors"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Groups splits records into lists of one Group each, in the same order.
func Groups(records []Record) [][]Record {
	var all [][]Record
	for len(records) > 0 {
		n := 1
		for records[0].Group != "" && n < len(records) && records[n].Group == records[0].Group {
			n++
		}
		all, records = append(all, records[:n]), records[n:]
	}
	return all
}

// Lasting returns the records that disappear with the interface's addresses and are restored only by Restore:
// addresses, routes and neighbours, without those created by the kernel.
func Lasting(i Interface) ([]Record, error) {
	all, err := Of(i)
	all = slices.DeleteFunc(all, func(r Record) bool {
		return r.Kind == Rule || r.Automatic() || !r.Mentions(i.Name)
	})
	for n := range all {
		all[n].forgetTimes()
	}
	return all, err
}

// forgetTimes removes the times of the last change or query, so that equal states are equal texts.
func (r *Record) forgetTimes() {
	switch r.Kind {
	case Address:
		if info := r.attr(unix.IFA_CACHEINFO); len(info) > 8 { // behind the lifetimes
			clear(info[8:])
		}
	case Neighbour:
		r.set(unix.NDA_CACHEINFO, nil)
	}
}

// Lost lists the records missing from an interface, without routes that ended with another interface. An address in use by
// another host is lost, too.
func Lost(records []Record, i Interface) ([]Record, error) {
	is, err := Of(i)
	if err != nil {
		return nil, err
	}
	has, duplicates := map[string]bool{}, map[string]bool{}
	for _, r := range is {
		has[r.Key()], duplicates[r.Key()] = true, r.duplicate()
	}
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool {
		return has[r.Key()] && !(duplicates[r.Key()] && r.Usable()) || ended(r)
	}), nil
}

// ended reports whether a route leads over another interface, where the kernel accepts none: it is gone or down, or its IPv6 is
// off.
func ended(r Record) bool {
	if r.Kind != Route {
		return false
	}
	out := false
	over := func(index []byte) {
		if out || len(index) < 4 || native.Uint32(index) == 0 {
			return
		}
		l, err := netlink.LinkByIndex(int(native.Uint32(index)))
		if err != nil || l.Attrs().RawFlags&unix.IFF_UP == 0 {
			out = true
			return
		}
		off, _ := os.ReadFile(sysctlPath(DisableIPv6, Interface{Name: l.Attrs().Name})) // a kernel without IPv6 has none
		out = r.Is6() && !bytes.HasPrefix(off, []byte("0"))
	}
	over(r.attr(unix.RTA_OIF))
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) { over(hop[4:]) })
	return out
}

// Restore adds the records missing from an interface. Lifetimes start again. A record refused by the kernel does not
// affect the others.
func Restore(records []Record, to Interface) error {
	lost, err := Lost(records, to)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range lost {
		errs = append(errs, Add(r, to, 0))
	}
	return errors.Join(errs...)
}
