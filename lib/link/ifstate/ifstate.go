// Package ifstate saves the kernel's state of a network interface and restores it, also to another interface: its
// addresses, the routes of all tables, the rules with its name and its permanent neighbours.
//
// Each of these is a Record: the kernel's own message (rtnetlink(7)), with a placeholder for the interface. So
// attributes unknown to this program are kept, and a Record can be written to a file. All functions act in the
// network namespace of the calling thread, and are idempotent.
package ifstate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Kind is the kind of a Record.
type Kind string

// The kinds of records.
const (
	Address   Kind = "address"
	Route     Kind = "route"
	Rule      Kind = "rule"
	Neighbour Kind = "neighbour"
)

// A Record is one entry of the kernel's tables.
type Record struct {
	Kind Kind `json:"kind"`
	// Text is for people, in the syntax of ip(8), without the interface.
	Text string `json:"text"`
	// Header is the fixed part of the message, Attrs the rest. Interface index 0 in them stands for the record's own
	// interface.
	Header []byte `json:"header"`
	Attrs  []Attr `json:"attrs"`
	// Group is equal for records whose relative order matters, such as routes to one destination with one metric.
	Group string `json:"group,omitempty"`
	// Learned holds the kernel's flags (RTF_*) of a route from router advertisements, 0 for others.
	Learned uint32 `json:"learned,omitempty"`
}

// An Attr is one attribute of a message.
type Attr struct {
	Type  uint16 `json:"type"`
	Value []byte `json:"value"`
}

// An Interface identifies the source or target of records.
type Interface struct {
	Name  string
	Index int
}

// Sizes of headers and nested structs; see linux/rtnetlink.h, linux/if_addr.h, linux/fib_rules.h and
// linux/neighbour.h.
const (
	sizeofAddress = 8  // struct ifaddrmsg
	sizeofRoute   = 12 // struct rtmsg
	sizeofRule    = 12 // struct fib_rule_hdr
	sizeofNeigh   = 12 // struct ndmsg
	sizeofHop     = 8  // struct rtnexthop
	sizeofAttr    = 4  // struct rtattr
)

// Attributes missing from golang.org/x/sys/unix.
const (
	ruleIn  = 3 // FRA_IIFNAME
	ruleOut = 17

	routeExpires = 23 // RTA_EXPIRES
	routeNextHop = 30 // RTA_NH_ID
)

// forever is an infinite lifetime.
const forever = 0xffffffff

// native is the byte order of netlink.
var native = binary.NativeEndian

// attr returns an attribute's value, or nil.
func (r Record) attr(kind uint16) []byte {
	for _, a := range r.Attrs {
		if a.Type == kind {
			return a.Value
		}
	}
	return nil
}

// set sets an attribute, or removes it if value is nil.
func (r *Record) set(kind uint16, value []byte) {
	i := slices.IndexFunc(r.Attrs, func(a Attr) bool { return a.Type == kind })
	switch {
	case i < 0 && value != nil:
		r.Attrs = append(r.Attrs, Attr{kind, value})
	case i >= 0 && value != nil:
		r.Attrs[i].Value = value
	case i >= 0:
		r.Attrs = slices.Delete(r.Attrs, i, i+1)
	}
}

// clone returns a deep copy.
func (r Record) clone() Record {
	r.Header = bytes.Clone(r.Header)
	r.Attrs = slices.Clone(r.Attrs)
	for i, a := range r.Attrs {
		r.Attrs[i].Value = bytes.Clone(a.Value)
	}
	return r
}

// family is AF_INET or AF_INET6. It is the first byte of every header.
func (r Record) family() byte { return r.Header[0] }

// Is6 reports whether the record is about IPv6.
func (r Record) Is6() bool { return r.family() == unix.AF_INET6 }

// Named returns r with an interface's name was replaced by is, in rules and address labels.
func (r Record) Named(was, is string) Record {
	out := r.clone()
	switch r.Kind {
	case Rule:
		for _, kind := range []uint16{ruleIn, ruleOut} {
			if text(r.attr(kind)) == was {
				out.set(kind, zeroEnded(is))
			}
		}
	case Address:
		label := text(r.attr(unix.IFA_LABEL))
		rest, ours := strings.CutPrefix(label, was)
		// A label that would be too long is kept, and so restored later.
		if ours && (rest == "" || rest[0] == ':') && len(is)+len(rest) < unix.IFNAMSIZ {
			out.set(unix.IFA_LABEL, zeroEnded(is+rest))
		}
	}
	out.Text = strings.Join(replaceWord(strings.Fields(r.Text), was, is), " ")
	return out
}

// replaceWord replaces an interface's name in the text of a rule.
func replaceWord(words []string, was, is string) []string {
	for i := range words {
		if i > 0 && (words[i-1] == "iif" || words[i-1] == "oif") && words[i] == was {
			words[i] = is
		}
	}
	return words
}

func text(zeroEnded []byte) string { return string(bytes.TrimRight(zeroEnded, "\x00")) }

// zeroEnded is the inverse of text.
func zeroEnded(s string) []byte { return append([]byte(s), 0) }

// hops calls f with the header of each next hop of a multipath route.
func hops(multipath []byte, f func(hop []byte)) {
	for len(multipath) >= sizeofHop {
		n := int(native.Uint16(multipath))
		if n < sizeofHop || n > len(multipath) {
			return
		}
		f(multipath[:n])
		multipath = multipath[min((n+3)&^3, len(multipath)):]
	}
}

// moveIndex replaces an interface index in the record, and reports whether it was found.
func (r *Record) moveIndex(was, is int) bool {
	found := false
	swap := func(b []byte) {
		if len(b) >= 4 && native.Uint32(b) == uint32(was) {
			native.PutUint32(b, uint32(is))
			found = true
		}
	}
	switch r.Kind {
	case Address, Neighbour:
		swap(r.Header[4:])
	case Route:
		swap(r.attr(unix.RTA_OIF))
		hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) { swap(hop[4:]) })
	}
	return found
}

// Adopted returns a record with the interface at index as its own interface: its index becomes the placeholder, as in
// routes of a Group.
func (r Record) Adopted(index int) Record {
	out := r.clone()
	out.moveIndex(index, 0)
	return out
}

// Mentions reports whether the record refers to its own interface. Other records depend on its addresses, or share a
// Group.
func (r Record) Mentions(owner string) bool {
	if r.Kind == Rule {
		return text(r.attr(ruleIn)) == owner || text(r.attr(ruleOut)) == owner
	}
	c := r.clone()
	return c.moveIndex(0, 0)
}

// Key is equal for equivalent records. Values counted or decided by the kernel are omitted, such as remaining
// lifetimes.
func (r Record) Key() string {
	c := r.clone()
	switch r.Kind {
	case Address:
		c.Header[2] = 0 // flags: see the attribute
		c.set(unix.IFA_CACHEINFO, lifetimes(r.attr(unix.IFA_CACHEINFO)))
		c.set(unix.IFA_FLAGS, addressFlags(r))
	case Route:
		if r.Learned != 0 {
			c = r.unlabelled()
		}
		clearRouteFlags(&c)
		if _, ok := expiry(r); ok {
			c.set(routeExpires, []byte{1})
		}
		c.set(unix.RTA_CACHEINFO, nil)
	case Rule:
		clearRuleFlags(&c)
	case Neighbour:
		c.set(unix.NDA_CACHEINFO, nil)
		c.set(unix.NDA_PROBES, nil)
	}
	slices.SortStableFunc(c.Attrs, func(a, b Attr) int { return int(a.Type) - int(b.Type) })
	return fmt.Sprintf("%s %x %x %v", c.Kind, c.Header, c.Attrs, r.Learned != 0)
}

// lifetimes reduces struct ifa_cacheinfo to whether each lifetime is infinite.
func lifetimes(info []byte) []byte {
	if len(info) < 8 {
		return nil
	}
	out := make([]byte, 2)
	for i := range out {
		if native.Uint32(info[4*i:]) == forever {
			out[i] = 1
		}
	}
	return out
}

// settableFlags are the flags of addresses accepted from programs: inet6_rtm_newaddr() of net/ipv6/addrconf.c and
// rtm_to_ifaddr() of net/ipv4/devinet.c. The kernel derives the others.
const settableFlags = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR |
	unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN

func addressFlags(r Record) []byte { return native.AppendUint32(nil, r.flags()&settableFlags) }

// flags returns the flags of an address.
func (r Record) flags() uint32 {
	if v := r.attr(unix.IFA_FLAGS); len(v) == 4 {
		return native.Uint32(v)
	}
	return uint32(r.Header[2])
}

// Usable reports whether a record is an address known to be unique: duplicate address detection has ended (RFC 4862
// section 5.4), and found no duplicate.
func (r Record) Usable() bool {
	if r.Kind != Address {
		return false
	}
	flags := r.flags()
	return flags&unix.IFA_F_DADFAILED == 0 && (flags&unix.IFA_F_TENTATIVE == 0 || flags&unix.IFA_F_OPTIMISTIC != 0)
}

// Flags returns the kernel's flags of an address.
func Flags(r Record) uint32 { return r.flags() }

// duplicate reports whether a record is an address in use by another host.
func (r Record) duplicate() bool { return r.Kind == Address && r.flags()&unix.IFA_F_DADFAILED != 0 }

// clearRouteFlags keeps only "onlink". The kernel refuses or ignores the others.
func clearRouteFlags(r *Record) {
	native.PutUint32(r.Header[8:], native.Uint32(r.Header[8:])&unix.RTNH_F_ONLINK)
	hops(r.attr(unix.RTA_MULTIPATH), func(hop []byte) { hop[2] &= unix.RTNH_F_ONLINK })
}

// clearRuleFlags keeps only "not" (FIB_RULE_INVERT).
func clearRuleFlags(r *Record) {
	native.PutUint32(r.Header[8:], native.Uint32(r.Header[8:])&2)
}

// userHZ is the number of time units per second in struct rta_cacheinfo: USER_HZ is 100 on all architectures
// supported by Go.
const userHZ = 100

// expiry returns the seconds until a route expires, and whether it does.
func expiry(r Record) (int, bool) {
	info := r.attr(unix.RTA_CACHEINFO) // struct rta_cacheinfo
	if r.Kind != Route || len(info) < 12 {
		return 0, false
	}
	ticks := int32(native.Uint32(info[8:]))
	return max(int(ticks)/userHZ, 1), ticks != 0
}
