package nftables

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	netfilter "github.com/google/nftables"

	"ovn-k8s/lib/nftables/element"
	"ovn-k8s/lib/ruleset"
)

// A state is the contents of the table.
type state struct {
	there  bool                // the table
	chains map[string][]string // comments of rules, by chain
	sets   map[string]contents
	maps   map[string]contents
	// parts are those of the wanted table that was written last, by prefix. The other fields do not have their contents.
	parts map[string][]*ruleset.Table
}

// contents are the elements of a set. They are raw until a wanted set tells their fields.
type contents struct {
	raw      []netfilter.SetElement
	elements []ruleset.Element
	foreign  bool // there are others, of another program: no ruleset.Element is like them
}

// of returns the sets or the maps of a state: their kind is that of a wanted set.
func (s *state) of(set ruleset.Set) map[string]contents {
	if set.IsMap() {
		return s.maps
	}
	return s.sets
}

func (s *state) empty() bool { return len(s.chains)+len(s.sets)+len(s.maps)+len(s.parts) == 0 }

func (s *state) copied() *state {
	return &state{there: s.there, chains: copied(s.chains), sets: copied(s.sets), maps: copied(s.maps), parts: copied(s.parts)}
}

func copied[T any](from map[string]T) map[string]T {
	to := make(map[string]T, len(from))
	maps.Copy(to, from)
	return to
}

// add adds the objects of a table without parts.
func (s *state) add(t ruleset.Table) {
	for _, c := range t.Chains {
		s.chains[c.Name] = comments(c)
	}
	for _, set := range t.Sets {
		c := s.of(set)[set.Name]
		c.elements = append(slices.Clip(c.elements), set.Elements...)
		s.of(set)[set.Name] = c
	}
}

// absorb puts the contents of parts of other wanted tables into the other fields, if those tables and one with a prefix may
// have objects in common.
func (s *state) absorb(prefix string) {
	for other, parts := range s.parts {
		if other != prefix && (strings.HasPrefix(other, prefix) || strings.HasPrefix(prefix, other)) {
			s.add(whole(ruleset.Table{Parts: parts}))
			delete(s.parts, other)
		}
	}
}

// against returns the state and a wanted table without the parts that both have.
func (s *state) against(prefix string, want ruleset.Table) (have *state, rest ruleset.Table) {
	deleted, added := differingParts(s.parts[prefix], want.Parts)
	have = s.copied()
	have.add(whole(ruleset.Table{Parts: deleted}))
	want.Parts = added
	return have, whole(want)
}

// written returns the state after a wanted table was written.
func (s *state) written(prefix string, want ruleset.Table) *state {
	after := s.copied()
	has := func(name string) bool { return strings.HasPrefix(name, prefix) }
	maps.DeleteFunc(after.chains, func(name string, _ []string) bool { return has(name) })
	maps.DeleteFunc(after.sets, func(name string, _ contents) bool { return has(name) })
	maps.DeleteFunc(after.maps, func(name string, _ contents) bool { return has(name) })
	delete(after.parts, prefix)
	if len(want.Parts) > 0 {
		after.parts[prefix] = want.Parts
	}
	want.Parts = nil
	after.add(whole(want))
	after.there = !after.empty()
	return after
}

// differingParts compares lists of parts. Mostly one of many has changed, between others in the same order.
func differingParts(have, want []*ruleset.Table) (deleted, added []*ruleset.Table) {
	have, want = trimmed(have, want)
	old := make(map[*ruleset.Table]bool, len(have))
	for _, p := range have {
		old[p] = true
	}
	for _, p := range want {
		if !old[p] {
			added = append(added, p)
		}
		delete(old, p)
	}
	return slices.DeleteFunc(slices.Clone(have), func(p *ruleset.Table) bool { return !old[p] }), added
}

// trimmed returns two lists without their equal beginnings and ends.
func trimmed[T comparable](a, b []T) ([]T, []T) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// whole returns a table without parts, and comments of elements as long as the kernel keeps them.
func whole(t ruleset.Table) ruleset.Table {
	t = t.Whole()
	for _, s := range t.Sets {
		for i, e := range s.Elements {
			s.Elements[i].Comment = e.Comment[:min(len(e.Comment), maxComment)]
		}
	}
	return t
}

// parse decodes the elements of a set that was read.
func (s *state) parse(set ruleset.Set, family netip.Addr) {
	all := s.of(set)
	c := all[set.Name]
	if len(c.raw) == 0 {
		return
	}
	parsed := contents{elements: make([]ruleset.Element, 0, len(c.raw))}
	for _, raw := range c.raw {
		e, err := element.Decode(set, family, raw)
		if err != nil {
			parsed.foreign = true
			continue
		}
		parsed.elements = append(parsed.elements, e)
	}
	all[set.Name] = parsed
}
