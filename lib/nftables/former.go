package nftables

import (
	"net/netip"
	"strings"

	netfilter "github.com/google/nftables"
	"github.com/google/nftables/expr"

	"ovn-k8s/lib/nftables/element"
	"ovn-k8s/lib/ruleset"
)

// former returns what the table has of some parts, beside a wanted table without them: each as it was written before for its
// owner, perhaps by another process. Elements tell their part by their comments, and lead to its chains. The rules have no
// text, see signed.
func (t *Table) former(prefix string, want ruleset.Table, parts []*ruleset.Table) ([]*ruleset.Table, error) {
	f := former{kernel: t.kernel, have: t.state.copied(), taken: map[string]bool{}}
	f.have.add(whole(ruleset.Table{Parts: f.have.parts[prefix]}))
	for _, table := range append([]*ruleset.Table{&want}, want.Parts...) {
		for _, c := range table.Chains {
			f.taken[c.Name] = true
		}
	}
	all := f.elements(want.Sets, parts)
	if len(all) == 0 {
		return nil, nil
	}
	c, err := netfilter.New(netfilter.AsLasting())
	if err != nil {
		return nil, err
	}
	defer closeLater(c.CloseLasting)
	for _, part := range all {
		for _, set := range part.Sets {
			for _, e := range set.Elements {
				if err := f.follow(c, part, strings.TrimPrefix(e.Verdict, "goto ")); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

// A former reads parts back.
type former struct {
	kernel
	have  *state
	taken map[string]bool // chains and sets, by a part or by none
}

// elements returns parts with their elements alone: those with a comment of the part, and those without one at the same
// address and port.
func (f *former) elements(sets []ruleset.Set, parts []*ruleset.Table) (out []*ruleset.Table) {
	type place struct {
		to       netip.Addr
		protocol string
		port     uint16
	}
	comments, places := map[string]*ruleset.Table{}, map[place]*ruleset.Table{}
	for _, p := range parts {
		old := &ruleset.Table{Owner: p.Owner}
		for _, s := range whole(*p).Sets {
			for _, e := range s.Elements {
				if e.Comment != "" {
					comments[e.Comment] = old
				}
			}
		}
		out = append(out, old)
	}
	each := func(of func(ruleset.Element, place) *ruleset.Table) {
		for _, s := range sets {
			found := map[*ruleset.Table][]ruleset.Element{}
			for _, e := range f.have.of(s)[s.Name].elements {
				if old := of(e, place{e.Destination, e.Protocol, e.Port}); old != nil {
					found[old] = append(found[old], e)
				}
			}
			for old, elements := range found {
				s.Elements = elements
				old.Sets = append(old.Sets, s)
			}
		}
	}
	for _, s := range sets {
		f.taken[s.Name] = true
		f.have.parse(s, f.family)
	}
	each(func(e ruleset.Element, at place) *ruleset.Table {
		old := comments[e.Comment]
		if old != nil {
			places[at] = old
		}
		return old
	})
	each(func(e ruleset.Element, at place) *ruleset.Table {
		if e.Comment != "" {
			return nil
		}
		return places[at]
	})
	return out
}

// follow adds a chain to a part, and what its rules use.
func (f *former) follow(c *netfilter.Conn, part *ruleset.Table, chain string) error {
	old, there := f.have.chains[chain]
	if !there || f.taken[chain] {
		return nil
	}
	f.taken[chain] = true
	add := ruleset.Chain{Name: chain}
	for _, comment := range old {
		add.Rules = append(add.Rules, ruleset.Rule{Comment: comment})
	}
	part.Chains = append(part.Chains, add)
	if len(old) == 0 {
		return nil
	}
	rules, err := c.GetRules(f.table(), &netfilter.Chain{Name: chain})
	if err != nil {
		return err
	}
	for _, r := range rules {
		for _, x := range r.Exprs {
			switch x := x.(type) {
			case *expr.Verdict:
				err = f.follow(c, part, x.Chain)
			case *expr.Dynset:
				err = f.use(c, part, x.SetName)
			case *expr.Lookup:
				err = f.use(c, part, x.SetName)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// use adds a set to a part. A set without a name of ours belongs to one rule, and may lead to chains.
func (f *former) use(c *netfilter.Conn, part *ruleset.Table, set string) error {
	if f.taken[set] {
		return nil
	}
	f.taken[set] = true
	if _, there := f.have.sets[set]; there {
		part.Sets = append(part.Sets, ruleset.Set{Name: set})
		return nil
	}
	elements, err := c.GetSetElements(&netfilter.Set{Table: f.table(), Name: set})
	if err != nil {
		return err
	}
	for _, raw := range elements {
		e, err := element.Decode(ruleset.Set{Value: ruleset.Verdict}, f.family, netfilter.SetElement{Val: raw.Val})
		if err != nil {
			continue // not of a goto
		}
		if err := f.follow(c, part, strings.TrimPrefix(e.Verdict, "goto ")); err != nil {
			return err
		}
	}
	return nil
}
