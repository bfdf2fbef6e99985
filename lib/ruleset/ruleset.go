// Package ruleset describes objects of a table of nftables, nft(8), as values: chains with rules, and sets and maps with
// elements.
package ruleset

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Table is a list of objects of a table. Its family is known from elsewhere.
type Table struct {
	// Owner names the owner of a part, for people.
	Owner  string
	Chains []Chain
	Sets   []Set
	// Parts have further chains and sets, and further elements of Sets. Two parts have no chain and no key of an element
	// in common. A part does not change: equal pointers mean equal contents.
	Parts []*Table
}

// Whole returns the table without parts: their contents are its own. The first element with a key has it.
func (t Table) Whole() Table {
	w := Table{Chains: slices.Clone(t.Chains)}
	index, taken := map[string]int{}, map[string]map[Element]bool{}
	add := func(s Set) {
		i, there := index[s.Name]
		if !there {
			i = len(w.Sets)
			index[s.Name], taken[s.Name] = i, map[Element]bool{}
			w.Sets = append(w.Sets, s)
			w.Sets[i].Elements = nil
		}
		for _, e := range s.Elements {
			if key := e.Bare(); !taken[s.Name][key] {
				taken[s.Name][key] = true
				w.Sets[i].Elements = append(w.Sets[i].Elements, e)
			}
		}
	}
	for _, s := range t.Sets {
		add(s)
	}
	for _, p := range t.Parts {
		w.Chains = append(w.Chains, p.Chains...)
		for _, s := range p.Sets {
			add(s)
		}
	}
	return w
}

// A Chain is a base chain if it has a hook.
type Chain struct {
	Name                 string
	Type, Hook, Priority string // "nat", "prerouting", "dstnat-10"
	Rules                []Rule
}

// A Rule is one rule of a chain.
type Rule struct {
	Text       string      // as in nft(8)
	Comment    string      // the purpose of the rule
	Statements []Statement // the same as Text, or nil
}

// A Set is a set, or a map if it has a value.
type Set struct {
	Name  string
	Key   []Field
	Value Value
	// Timeout in seconds makes the set one that rules add sources to. It has no Elements.
	Timeout  int
	Elements []Element
}

// A Field is a part of the key of elements.
type Field int

// The fields, in the order in which they appear in a key.
const (
	Source Field = iota // address or prefix
	Destination
	Protocol
	Port
)

// A Value is the kind of values in a map.
type Value int

// The kinds of values.
const (
	None Value = iota
	Verdict
	AddrPort
)

// An Element is an element of a set or a map. Only fields of the set's key and value are relevant.
type Element struct {
	Source      netip.Prefix
	Destination netip.Addr
	Protocol    string // "tcp"
	Port        uint16
	Verdict     string // "goto NAME", "drop"
	To          netip.AddrPort
	Comment     string
}

// Bare is the element without value and comment: its key.
func (e Element) Bare() Element {
	e.Verdict, e.To, e.Comment = "", netip.AddrPort{}, ""
	return e
}

// Type is the type of the set's elements, as in the declaration of a set or map.
func (s Set) Type(family netip.Addr) string {
	address := "ipv4_addr"
	if family.Is6() {
		address = "ipv6_addr"
	}
	var key []string
	for _, f := range s.Key {
		key = append(key, [...]string{Source: address, Destination: address, Protocol: "inet_proto", Port: "inet_service"}[f])
	}
	return strings.Join(key, " . ") + [...]string{None: "", Verdict: " : verdict", AddrPort: " : " + address + " . inet_service"}[s.Value]
}

// IsMap reports whether elements have values.
func (s Set) IsMap() bool { return s.Value != None }

// HasRanges reports whether elements may have prefixes as sources.
func (s Set) HasRanges() bool { return s.Timeout == 0 && len(s.Key) > 0 && s.Key[0] == Source }

// KeyOf formats the key of an element.
func (s Set) KeyOf(e Element) (key []string) {
	for _, f := range s.Key {
		switch f {
		case Source:
			key = append(key, prefix(e.Source))
		case Destination:
			key = append(key, e.Destination.String())
		case Protocol:
			key = append(key, e.Protocol)
		case Port:
			key = append(key, strconv.Itoa(int(e.Port)))
		}
	}
	return key
}

// prefix formats a prefix as nft does: a single address without length.
func prefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// ValueOf formats the value of an element.
func (s Set) ValueOf(e Element) []string {
	switch s.Value {
	case Verdict:
		return []string{e.Verdict}
	case AddrPort:
		return []string{e.To.Addr().String(), strconv.Itoa(int(e.To.Port()))}
	}
	return nil
}
