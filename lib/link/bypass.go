package link

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Bypass routes packets with a mark to a gateway, regardless of other routes: rules with a table of their own, for
// one family.
type Bypass struct {
	Interface string
	Via       netip.Addr
	// Mark selects packets, and To their destinations: other programs have marks with the same bit, such as wg-quick.
	Mark uint32
	To   []netip.Prefix
	// Table is the routing table. Its routes and rules of Protocol are ours. The rules' preference is the next number:
	// releases before had a rule of preference Table for all destinations, and the kernel would delete another for it.
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
	var want []string
	for _, to := range b.To {
		r := b.rule(to)
		if want = append(want, textOf(r)); !slices.ContainsFunc(rules, func(is netlink.Rule) bool { return textOf(is) == textOf(r) }) {
			changes = append(changes, Change{text: "add " + textOf(r), do: func() error { return ignore(netlink.RuleAdd(&r), unix.EEXIST) }})
		}
	}
	rules = slices.DeleteFunc(rules, func(is netlink.Rule) bool { return slices.Contains(want, textOf(is)) })
	return append(changes, removals(rules)...), nil
}

// removals remove rules.
func removals(rules []netlink.Rule) (changes []Change) {
	for _, r := range rules {
		changes = append(changes, Change{text: "remove " + textOf(r), removes: true, do: func() error { return ignore(netlink.RuleDel(&r), unix.ENOENT) }})
	}
	return changes
}

// textOf identifies a rule of ours.
func textOf(r netlink.Rule) string {
	to, mask := "all", r.Mark
	if r.Dst != nil {
		to = r.Dst.String()
	}
	if r.Mask != nil {
		mask = *r.Mask
	}
	return fmt.Sprintf("rule pref %d to %s fwmark %#x/%#x lookup %d", r.Priority, to, r.Mark, mask, r.Table)
}

// EnsureBypass creates b, and returns the changes. Missing routes and rules are added, other rules of ours removed;
// foreign ones are kept.
func EnsureBypass(b Bypass) ([]Change, error) {
	changes, err := PlanBypass(b)
	if err != nil {
		return nil, err
	}
	return changes, apply(changes)
}

// rule is the routing rule of b for one destination.
func (b Bypass) rule(to netip.Prefix) netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table, r.Protocol = familyOf(b.Via), b.Table+1, b.Table, Protocol
	r.Dst, r.Mark, r.Mask = ipNet(to), b.Mark, &b.Mark
	return *r
}

// PlanNoBypass lists the changes of RemoveBypass.
func PlanNoBypass(family netip.Addr, table int) ([]Change, error) {
	routes, rules, err := bypasses(family, table)
	if err != nil {
		return nil, err
	}
	changes := removals(rules)
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
