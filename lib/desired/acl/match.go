package acl

import (
	"net/netip"
	"slices"
	"strings"
)

// Terms are addresses, subnets and address sets to compare with those of packets, by family.
type Terms struct {
	v4, v6     []string
	all4, all6 bool
}

// Group adds the addresses of a port group: OVN makes address sets of them.
func (t *Terms) Group(name string) {
	t.v4 = append(t.v4, "$"+name+"_ip4")
	t.v6 = append(t.v6, "$"+name+"_ip6")
}

// Add adds a prefix.
func (t *Terms) Add(p netip.Prefix) {
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	switch {
	case p.Bits() == 0 && p.Addr().Is4():
		t.all4 = true
	case p.Bits() == 0:
		t.all6 = true
	case p.Addr().Is4():
		t.v4 = append(t.v4, text)
	default:
		t.v6 = append(t.v6, text)
	}
}

// A Side is an expression for the packets of one family, "ip4" or "ip6".
type Side struct{ Family, Match string }

// Sides returns one expression for each family with terms, of "src" or "dst".
func (t *Terms) Sides(field string) (out []Side) {
	for _, f := range []struct {
		name  string
		all   bool
		terms []string
	}{{"ip4", t.all4, t.v4}, {"ip6", t.all6, t.v6}} {
		switch {
		case f.all:
			out = append(out, Side{f.name, f.name})
		case len(f.terms) > 0:
			out = append(out, Side{f.name, f.name + "." + field + " == " + set(f.terms)})
		}
	}
	return out
}

// set formats terms for OVN's operator "==", "a" or "{a, b}".
func set(terms []string) string {
	if len(terms) == 1 {
		return terms[0]
	}
	list := slices.Compact(slices.Sorted(slices.Values(terms)))
	if len(list) == 1 {
		return list[0]
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// List returns the expressions of Sides.
func (t *Terms) List(field string) (out []string) {
	for _, s := range t.Sides(field) {
		out = append(out, s.Match)
	}
	return out
}

// Everything is an expression omitted by And.
const Everything = "*"

// Or joins expressions by "||". Without any it returns "", which never matches.
func Or(list []string) string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	for i, s := range list {
		if strings.Contains(s, " && ") {
			list[i] = "(" + s + ")"
		}
	}
	return strings.Join(list, " || ")
}

// And joins expressions by "&&". It returns "" if one of them never matches.
func And(list ...string) string {
	var terms []string
	for _, s := range list {
		switch {
		case s == "":
			return ""
		case strings.Contains(s, " || "):
			terms = append(terms, "("+s+")")
		case s != Everything:
			terms = append(terms, s)
		}
	}
	return strings.Join(terms, " && ")
}
