package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// terms are addresses, subnets and address sets to compare with those of packets, by family.
type terms struct {
	v4, v6     []string
	all4, all6 bool
}

// group adds the addresses of a port group: OVN makes address sets of them.
func (t *terms) group(name string) {
	t.v4 = append(t.v4, "$"+name+"_ip4")
	t.v6 = append(t.v6, "$"+name+"_ip6")
}

// add adds a prefix.
func (t *terms) add(p netip.Prefix) {
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

// A side is an expression for the packets of one family, "ip4" or "ip6".
type side struct{ family, match string }

// sides returns one expression for each family with terms, of "src" or "dst".
func (t *terms) sides(field string) (out []side) {
	for _, f := range []struct {
		name  string
		all   bool
		terms []string
	}{{"ip4", t.all4, t.v4}, {"ip6", t.all6, t.v6}} {
		switch {
		case f.all:
			out = append(out, side{f.name, f.name})
		case len(f.terms) > 0:
			out = append(out, side{f.name, f.name + "." + field + " == " + set(f.terms)})
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

// list returns the expressions of sides.
func (t *terms) list(field string) (out []string) {
	for _, s := range t.sides(field) {
		out = append(out, s.match)
	}
	return out
}

// portTerms returns one expression for each port or range.
func portTerms(ports []portRange) []string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = portTerm(p)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func portTerm(p portRange) string {
	proto, from, to := keyword(p.proto), strconv.Itoa(int(p.from)), strconv.Itoa(int(p.to))
	switch {
	case p.from == 0:
		return proto
	case p.from == p.to:
		return proto + ".dst == " + from
	}
	return from + " <= " + proto + ".dst <= " + to
}

// everything is an expression omitted by and.
const everything = "*"

// or joins expressions by "||". Without any it returns "", which never matches.
func or(list []string) string {
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

// and joins expressions by "&&". It returns "" if one of them never matches.
func and(list ...string) string {
	var terms []string
	for _, s := range list {
		switch {
		case s == "":
			return ""
		case strings.Contains(s, " || "):
			terms = append(terms, "("+s+")")
		case s != everything:
			terms = append(terms, s)
		}
	}
	return strings.Join(terms, " && ")
}
