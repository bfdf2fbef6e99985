package ifstate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of returns the records of an interface in the order for adding them: addresses, then routes, neighbours and rules.
// They include dependent routes and rules of other interfaces: IPv4 routes with a source address of the interface,
// and all records of the Groups of its own ones.
func Of(i Interface) ([]Record, error) {
	var all []Record
	for _, list := range []func(Interface) ([]Record, error){addressesOf, routesOf, neighboursOf, rulesOf} {
		some, err := list(i)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// dumpTries bounds the repetitions of an interrupted dump.
const dumpTries = 20

// dump lists a table of the kernel. header is the header of the request, for one family. The result is empty for a
// family missing from the kernel, as IPv6 with ipv6.disable=1: the kernel may refuse the request, or answer with all
// other families.
func dump(get, answer uint16, kind Kind, header []byte, size int) ([]Record, error) {
	var messages [][]byte
	var err error
	for range dumpTries {
		req := nl.NewNetlinkRequest(int(get), unix.NLM_F_DUMP)
		req.AddRawData(header)
		if messages, err = req.Execute(unix.NETLINK_ROUTE, answer); !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the kernel's %s table: %w", kind, err)
	}
	var all []Record
	for _, m := range messages {
		if len(m) < size {
			continue
		}
		r := Record{Kind: kind, Header: m[:size:size], Attrs: split(m[size:])}
		if r.family() == header[0] {
			all = append(all, r)
		}
	}
	return all, nil
}

// families are requested one by one: with AF_UNSPEC, the kernel also lists multicast routes and others.
var families = []byte{unix.AF_INET, unix.AF_INET6}

// header creates a request header of this size for a family.
func header(size int, family byte) []byte {
	h := make([]byte, size)
	h[0] = family
	return h
}

func addressesOf(i Interface) ([]Record, error) {
	var mine []Record
	for _, f := range families {
		all, err := dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, Address, header(sizeofAddress, f), sizeofAddress)
		if err != nil {
			return nil, err
		}
		var some []Record
		for _, r := range all {
			if r.moveIndex(i.Index, 0) {
				r.describe()
				some = append(some, r)
			}
		}
		if f == unix.AF_INET6 {
			slices.Reverse(some) // the kernel inserts a new one before the others, and prefers it
		}
		mine = append(mine, some...)
	}
	return mine, nil
}

// routesOf lists routes, without those in the table "local" created and deleted by the kernel with their address.
func routesOf(i Interface) ([]Record, error) {
	sources := map[netip.Addr]bool{}
	addresses, err := addressesOf(i)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		sources[a.Prefix().Addr()] = !a.Is6()
	}
	var mine []Record
	for _, f := range families {
		all, err := dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, Route, header(sizeofRoute, f), sizeofRoute)
		if err != nil {
			return nil, err
		}
		if err := markLearned(all); err != nil {
			return nil, err
		}
		affected := map[string]bool{}
		for n := range all {
			r := &all[n]
			r.Group = fmt.Sprintf("route %d %d %x/%d tos %d metric %d", f, r.table(), r.attr(unix.RTA_DST), r.Header[1], r.Header[3], r.Metric())
			src, _ := netip.AddrFromSlice(r.attr(unix.RTA_PREFSRC))
			if !derived(*r) && (r.moveIndex(i.Index, 0) || sources[src]) {
				affected[r.Group] = true
			}
		}
		for _, r := range all {
			if derived(r) || !affected[r.Group] {
				continue
			}
			r.describe()
			mine = append(mine, r)
		}
	}
	return linksFirst(mine), nil
}

// derived reports whether a route is created by the kernel for an address, or a cache entry.
func derived(r Record) bool {
	local := r.table() == unix.RT_TABLE_LOCAL && r.Header[5] == unix.RTPROT_KERNEL
	return local || native.Uint32(r.Header[8:])&unix.RTM_F_CLONED != 0
}

// linksFirst sorts routes with a gateway after those without, needed by the kernel to resolve the gateway, and
// shorter prefixes after longer ones, which may lead to their gateway. The order within Groups is kept.
func linksFirst(routes []Record) []Record {
	far := map[string]int{}
	for _, r := range routes {
		if gatewayOf(r.Attrs) != nil || r.attr(unix.RTA_MULTIPATH) != nil {
			far[r.Group] = 1
		}
	}
	slices.SortStableFunc(routes, func(a, b Record) int {
		return cmp.Or(far[a.Group]-far[b.Group], int(b.Header[1])-int(a.Header[1]))
	})
	return routes
}

func neighboursOf(i Interface) ([]Record, error) {
	var mine []Record
	for _, f := range families {
		for _, flags := range []byte{0, unix.NTF_PROXY} {
			h := header(sizeofNeigh, f)
			h[10] = flags
			all, err := dump(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, Neighbour, h, sizeofNeigh)
			if err != nil {
				return nil, err
			}
			for _, r := range all {
				lasting := native.Uint16(r.Header[8:])&unix.NUD_PERMANENT != 0 || flags == unix.NTF_PROXY
				if lasting && r.Header[10]&unix.NTF_PROXY == flags && r.moveIndex(i.Index, 0) {
					r.describe()
					mine = append(mine, r)
				}
			}
		}
	}
	return mine, nil
}

// rulesOf lists the rules with an interface's name, and all rules of the same preference, since the kernel appends a
// new rule to these.
func rulesOf(i Interface) ([]Record, error) {
	var mine []Record
	for _, f := range families {
		all, err := dump(unix.RTM_GETRULE, unix.RTM_NEWRULE, Rule, header(sizeofRule, f), sizeofRule)
		if err != nil {
			return nil, err
		}
		affected := map[string]bool{}
		for n := range all {
			r := &all[n]
			r.Group = fmt.Sprintf("rule %d pref %d", f, r.Metric())
			affected[r.Group] = affected[r.Group] || r.Mentions(i.Name)
		}
		for _, r := range all {
			if affected[r.Group] {
				r.describe()
				mine = append(mine, r)
			}
		}
	}
	return mine, nil
}

// messages are the message types for adding and deleting a Kind.
var messages = map[Kind][2]uint16{
	Address:   {unix.RTM_NEWADDR, unix.RTM_DELADDR},
	Route:     {unix.RTM_NEWROUTE, unix.RTM_DELROUTE},
	Rule:      {unix.RTM_NEWRULE, unix.RTM_DELRULE},
	Neighbour: {unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH},
}

// send sends a record as a message.
func send(message uint16, flags int, r Record) error {
	req := nl.NewNetlinkRequest(int(message), unix.NLM_F_ACK|flags)
	body := bytes.Clone(r.Header)
	for _, a := range r.Attrs {
		body = append(body, nl.NewRtAttr(int(a.Type), a.Value).Serialize()...)
	}
	req.AddRawData(body)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Add adds a record to an interface. Lifetimes are reduced by age, the seconds since the record was read. Add does not insist on
// records of other interfaces: these may have changed since. See Lost.
func Add(r Record, to Interface, age uint32) error {
	c := outgoing(r, to, age)
	var err error
	switch {
	case r.Kind == Address && r.Is6():
		err = addIPv6(c, r.Usable())
	case r.Kind == Address:
		err = send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, c)
	case r.Learned != 0:
		err = addLearned(c, r, age)
	case r.Kind == Route:
		err = addRoute(c, r, to)
	case r.Kind == Neighbour:
		err = send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, c)
	default:
		err = send(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, c)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) && r.Mentions(to.Name) && !ended(r) {
		return fmt.Errorf("adding %s %s to %s: %w", r.Kind, r.Text, to.Name, err)
	}
	return nil
}

// addIPv6 adds an address. had means that the host had the address before: it is added with IFA_F_NODAD and usable at
// once, instead of after a second or more of duplicate address detection; afterwards the flag is cleared, unless the
// record has it. Other addresses go through duplicate address detection.
func addIPv6(r Record, had bool) error {
	if !had {
		return send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, r)
	}
	wanted := r.attr(unix.IFA_FLAGS)
	now := r.clone()
	now.set(unix.IFA_FLAGS, native.AppendUint32(nil, native.Uint32(wanted)|unix.IFA_F_NODAD))
	err := send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, now)
	if err != nil || native.Uint32(wanted)&unix.IFA_F_NODAD != 0 {
		return err
	}
	return send(unix.RTM_NEWADDR, unix.NLM_F_REPLACE, r)
}

// outgoing is the message for adding a record to an interface.
func outgoing(r Record, to Interface, age uint32) Record {
	c := r.clone()
	c.moveIndex(0, to.Index)
	switch r.Kind {
	case Address:
		c.set(unix.IFA_FLAGS, addressFlags(r))
		c.Header[2] = 0
		if info := c.attr(unix.IFA_CACHEINFO); len(info) >= 8 {
			shorten(info, age)
			shorten(info[4:], age)
		}
	case Route:
		clearRouteFlags(&c)
		c.set(unix.RTA_CACHEINFO, nil)
		if seconds, ok := expiry(r); ok && r.Is6() {
			c.set(routeExpires, native.AppendUint32(nil, uint32(max(seconds-int(age), 1))))
		}
	case Rule:
		clearRuleFlags(&c)
	case Neighbour:
		c.set(unix.NDA_CACHEINFO, nil)
		c.set(unix.NDA_PROBES, nil)
	}
	return c
}

// shorten reduces a lifetime, unless it is infinite or 0. An expired address gets one second.
func shorten(lifetime []byte, age uint32) {
	is := native.Uint32(lifetime)
	if is == forever || is == 0 {
		return
	}
	native.PutUint32(lifetime, max(is, age+1)-age)
}

// Remove removes a record from an interface.
func Remove(r Record, from Interface) error {
	c := outgoing(r, from, 0)
	if r.Learned != 0 {
		c = c.unlabelled()
	}
	c.set(routeExpires, nil)
	err := send(messages[r.Kind][1], 0, c)
	done := []error{unix.EADDRNOTAVAIL, unix.ESRCH, unix.ENOENT, unix.ENODEV}
	if err != nil && !slices.ContainsFunc(done, func(d error) bool { return errors.Is(err, d) }) {
		return fmt.Errorf("removing %s %s from %s: %w", r.Kind, r.Text, from.Name, err)
	}
	return nil
}

// Arrange replaces the kernel's entries of one Group by the given ones, in their order. Matching entries at the
// beginning are kept, and all entries of interfaces other than of and from that are not given: they are newer.
func Arrange(group []Record, of, from Interface, age uint32) error {
	is, err := groupOf(group[0], of)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	for _, r := range group {
		given[r.Key()] = true
	}
	is = slices.DeleteFunc(is, func(o Record) bool {
		return !given[o.Key()] && !o.Mentions(of.Name) && !o.Adopted(from.Index).Mentions(from.Name)
	})
	for len(is) > 0 && len(group) > 0 && is[0].Key() == group[0].Key() {
		is, group = is[1:], group[1:]
	}
	var errs []error
	for _, r := range is {
		errs = append(errs, Remove(r, of))
	}
	for _, r := range group {
		errs = append(errs, Add(r, of, age))
	}
	return errors.Join(errs...)
}

// groupOf lists the kernel's entries of the group of r.
func groupOf(r Record, of Interface) ([]Record, error) {
	var all []Record
	var err error
	if r.Kind == Rule {
		all, err = dump(unix.RTM_GETRULE, unix.RTM_NEWRULE, Rule, header(sizeofRule, r.family()), sizeofRule)
	} else {
		all, err = dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, Route, header(sizeofRoute, r.family()), sizeofRoute)
		err = errors.Join(err, markLearned(all))
	}
	return slices.DeleteFunc(all, func(o Record) bool {
		o.moveIndex(of.Index, 0)
		same := o.Metric() == r.Metric() && !derived(o)
		if r.Kind == Route {
			same = same && o.table() == r.table() && o.Header[1] == r.Header[1] && o.Header[3] == r.Header[3] &&
				slices.Equal(o.attr(unix.RTA_DST), r.attr(unix.RTA_DST))
		}
		return !same
	}), err
}

// Find returns the interface with that name or altname; its Name is the kernel's. The error satisfies errors.Is(err,
// ErrNone) if there is none.
func Find(name string) (Interface, error) {
	l, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return Interface{}, fmt.Errorf("interface %s %w", name, ErrNone)
	}
	if err != nil {
		return Interface{}, fmt.Errorf("looking up interface %s: %w", name, err)
	}
	return Interface{Name: l.Attrs().Name, Index: l.Attrs().Index}, nil
}

// ErrNone means that there is no such interface.
var ErrNone = errors.New("does not exist")

// A Device is the state of the interface itself.
type Device struct {
	MAC       net.HardwareAddr
	MTU       int
	Up        bool
	Promisc   bool
	Allmulti  bool
	Multicast bool
	Kind      string // "veth", "bond", "" for hardware: see ip-link(8)
	Master    string // the bridge, bond or VRF of which it is a port
}

// DeviceOf reads the state of an interface.
func DeviceOf(i Interface) (Device, error) {
	l, err := netlink.LinkByIndex(i.Index)
	if err != nil {
		return Device{}, fmt.Errorf("looking at interface %s: %w", i.Name, err)
	}
	a := l.Attrs()
	d := Device{
		MAC: a.HardwareAddr, MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0, Promisc: a.RawFlags&unix.IFF_PROMISC != 0,
		Allmulti: a.RawFlags&unix.IFF_ALLMULTI != 0, Multicast: a.RawFlags&unix.IFF_MULTICAST != 0, Kind: l.Type(),
	}
	if a.MasterIndex != 0 {
		m, err := netlink.LinkByIndex(a.MasterIndex)
		if err != nil {
			return d, fmt.Errorf("looking at the master of %s: %w", i.Name, err)
		}
		d.Master = m.Attrs().Name
	}
	return d, nil
}

// Apply sets the flags of d and, unless it is 0, the MTU of d.
func Apply(d Device, to Interface) error {
	l, err := netlink.LinkByIndex(to.Index)
	if err != nil {
		return fmt.Errorf("looking at interface %s: %w", to.Name, err)
	}
	a := l.Attrs()
	if d.MTU != 0 && d.MTU != a.MTU {
		if err := netlink.LinkSetMTU(l, d.MTU); err != nil {
			return fmt.Errorf("setting the MTU of %s to %d: %w", to.Name, d.MTU, err)
		}
	}
	flags := []struct {
		name    string
		is      bool
		want    bool
		on, off func(netlink.Link) error
	}{
		{"promisc", a.RawFlags&unix.IFF_PROMISC != 0, d.Promisc, netlink.SetPromiscOn, netlink.SetPromiscOff},
		{"allmulti", a.RawFlags&unix.IFF_ALLMULTI != 0, d.Allmulti, netlink.LinkSetAllmulticastOn, netlink.LinkSetAllmulticastOff},
		{"up", a.RawFlags&unix.IFF_UP != 0, d.Up, netlink.LinkSetUp, netlink.LinkSetDown},
	}
	for _, f := range flags {
		if f.is == f.want {
			continue
		}
		set := f.off
		if f.want {
			set = f.on
		}
		if err := set(l); err != nil {
			return fmt.Errorf("setting %s of %s to %v: %w", f.name, to.Name, f.want, err)
		}
	}
	return nil
}
