package link

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Bypass routes packets with a mark to a gateway, regardless of other routes: a rule with a table of its own, for
// one family.
type Bypass struct {
	Interface string
	Via       netip.Addr
	// Mark selects packets. No other bits of theirs may be set.
	Mark uint32
	// Table is the routing table, and the preference of the rule. Routes of Protocol in it are ours.
	Table int
}

// PlanBypass lists the changes of EnsureBypass.
func PlanBypass(b Bypass) ([]Change, error) {
	routes, rules, err := bypasses(b.Via, b.Table)
	if err != nil {
		return nil, err
	}
	var changes []Change
	there := slices.ContainsFunc(routes, func(r netlink.Route) bool { return same(r, DefaultRoute(b.Via)) })
	if !there {
		changes = append(changes, Change{
			text: fmt.Sprintf("add route %s dev %s table %d", DefaultRoute(b.Via), b.Interface, b.Table),
			do: onLink(b.Interface, func(l netlink.Link) error {
				return netlink.RouteReplace(&netlink.Route{
					LinkIndex: l.Attrs().Index, Dst: ipNet(DefaultRoute(b.Via).To), Gw: b.Via.AsSlice(), Protocol: Protocol, Table: b.Table,
				})
			}),
		})
	}
	want := b.rule()
	is := func(r netlink.Rule) bool {
		return r.Priority == want.Priority && r.Mark == want.Mark && r.Mask != nil && *r.Mask == *want.Mask
	}
	if !slices.ContainsFunc(rules, is) {
		changes = append(changes, Change{
			text: fmt.Sprintf("add rule pref %d fwmark %#x/%#x lookup %d", b.Table, b.Mark, b.Mark, b.Table),
			do:   func() error { return ignore(netlink.RuleAdd(want), unix.EEXIST) },
		})
	}
	return changes, nil
}

// EnsureBypass creates b, and returns the changes. Missing routes and rules are added; foreign ones are kept.
func EnsureBypass(b Bypass) ([]Change, error) {
	changes, err := PlanBypass(b)
	if err != nil {
		return nil, err
	}
	return changes, apply(changes)
}

// rule is the routing rule of b.
func (b Bypass) rule() *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table, r.Protocol = familyOf(b.Via), b.Table, b.Table, Protocol
	r.Mark, r.Mask = b.Mark, &b.Mark
	return r
}

// PlanNoBypass lists the changes of RemoveBypass.
func PlanNoBypass(family netip.Addr, table int) ([]Change, error) {
	routes, rules, err := bypasses(family, table)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, r := range rules {
		changes = append(changes, Change{
			text:    fmt.Sprintf("remove rule pref %d lookup %d", r.Priority, table),
			removes: true,
			do:      func() error { return ignore(netlink.RuleDel(&r), unix.ENOENT) },
		})
	}
	for _, r := range routes {
		changes = append(changes, Change{
			text:    fmt.Sprintf("remove route via %s table %d", r.Gw, table),
			removes: true,
			do:      func() error { return ignore(netlink.RouteDel(&r), unix.ESRCH) },
		})
	}
	return changes, nil
}

// RemoveBypass removes the routes and rules of a table created by EnsureBypass, in the family of an address. It is
// not an error if there are none.
func RemoveBypass(family netip.Addr, table int) error {
	changes, err := PlanNoBypass(family, table)
	if err != nil {
		return err
	}
	return apply(changes)
}

// bypasses lists our routes of a table, and our rules for it.
func bypasses(family netip.Addr, table int) ([]netlink.Route, []netlink.Rule, error) {
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(familyOf(family), &netlink.Route{Table: table, Protocol: Protocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the routes of table %d: %w", table, err)
	}
	rules, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(familyOf(family)) })
	if err = ignore(err, unix.EAFNOSUPPORT); err != nil { // a kernel without IPv6 has no rules for it
		return nil, nil, fmt.Errorf("listing the routing rules: %w", err)
	}
	return routes, slices.DeleteFunc(rules, func(r netlink.Rule) bool { return r.Table != table || r.Protocol != Protocol }), nil
}

// familyOf is the kernel's constant for the family of an address.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
