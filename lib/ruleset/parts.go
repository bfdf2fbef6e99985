package ruleset

import (
	"fmt"
	"slices"
	"strings"
)

// Besides returns the former parts with nothing in common with some parts, nor their owners.
func Besides(parts, former []*Table) (rest []*Table) {
	type key struct {
		set string
		Element
	}
	owners, chains, keys := map[string]bool{}, map[string]bool{}, map[key]bool{}
	for _, p := range parts {
		owners[p.Owner] = true
		for _, c := range p.Chains {
			chains[c.Name] = true
		}
		for _, set := range p.Sets {
			for _, e := range set.Elements {
				keys[key{set.Name, e.Bare()}] = true
			}
		}
	}
	taken := func(p *Table) bool {
		return owners[p.Owner] || slices.ContainsFunc(p.Chains, func(c Chain) bool { return chains[c.Name] }) ||
			slices.ContainsFunc(p.Sets, func(set Set) bool {
				return slices.ContainsFunc(set.Elements, func(e Element) bool { return keys[key{set.Name, e.Bare()}] })
			})
	}
	return slices.DeleteFunc(slices.Clone(former), taken)
}

// maxOwners bounds the owners named by an error.
const maxOwners = 4

// Owners names the owners of parts.
func Owners(parts []*Table) string {
	var names []string
	for _, p := range parts[:min(len(parts), maxOwners)] {
		names = append(names, p.Owner)
	}
	text := strings.Join(names, ", ")
	if more := len(parts) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
