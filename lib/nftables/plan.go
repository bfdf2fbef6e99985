package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"ovn-k8s/lib/ruleset"
)

// A plan is the changes of the table, in the order of its transaction.
type plan struct {
	after     *state
	newSets   []ruleset.Set
	newChains []ruleset.Chain
	flush     []string        // chains that are there, and keep no rule
	chains    []ruleset.Chain // new, or empty by then
	edits     []edit
	emptied   []ruleset.Set // with elements of other programs
	deleted   []change      // elements
	added     []change
	goneMaps  []string
	goneSets  []string
	gone      []string // chains
	first     bool     // nothing is there, not even the table
	last      bool     // nothing is left: the table goes
}

// A change is of an element.
type change struct {
	set ruleset.Set
	ruleset.Element
}

func (p *plan) empty() bool {
	return len(p.newSets)+len(p.newChains)+len(p.flush)+len(p.edits)+len(p.emptied)+len(p.deleted)+len(p.added)+len(p.goneMaps)+len(p.goneSets)+len(p.gone) == 0 && !p.last
}

// needsNFT reports whether the plan has rules given by their text only, or new objects other than sets of clients and chains
// without a hook.
func (p *plan) needsNFT() bool {
	return p.first ||
		slices.ContainsFunc(p.newSets, func(s ruleset.Set) bool { return s.Timeout == 0 }) ||
		slices.ContainsFunc(p.newChains, func(c ruleset.Chain) bool { return c.Hook != "" }) ||
		slices.ContainsFunc(p.chains, func(c ruleset.Chain) bool { return slices.ContainsFunc(c.Rules, textOnly) }) ||
		slices.ContainsFunc(p.edits, func(e edit) bool {
			return slices.ContainsFunc(e.steps, func(s step) bool { return s.add != nil && textOnly(*s.add) })
		})
}

func textOnly(r ruleset.Rule) bool { return len(r.Statements) == 0 }

// rules returns the changes of rules.
func (p *plan) rules(k kernel) (all []ruleChange, err error) {
	for _, c := range p.chains {
		for i := range c.Rules {
			all = append(all, ruleChange{c.Name, 0, &c.Rules[i]})
		}
	}
	for _, e := range p.edits {
		changes, err := e.changes(k)
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}

// compare plans the changes from a state to wanted objects, both without parts. The state stays as it is.
func compare(have *state, prefix string, want ruleset.Table) *plan {
	p := &plan{}
	wanted := map[string]bool{}
	for _, s := range want.Sets {
		wanted[s.Name] = true
		p.compareSet(have, s)
	}
	p.goneSets, p.goneMaps = obsolete(have.sets, prefix, wanted), obsolete(have.maps, prefix, wanted)
	wanted = map[string]bool{}
	for _, c := range want.Chains {
		wanted[c.Name] = true
		p.compareChain(have, c)
	}
	p.gone = obsolete(have.chains, prefix, wanted)
	p.flush = append(p.flush, p.gone...)
	return p
}

// obsolete returns the names with a prefix that are not wanted.
func obsolete[T any](have map[string]T, prefix string, wanted map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(have)), func(name string) bool { return !strings.HasPrefix(name, prefix) || wanted[name] })
}

func (p *plan) compareChain(have *state, c ruleset.Chain) {
	old, there := have.chains[c.Name]
	now := comments(c)
	if there && slices.Equal(old, now) {
		return
	}
	if e := edited(c, old, now); e.kept > 0 {
		p.edits = append(p.edits, e)
		return
	}
	if there {
		p.flush = append(p.flush, c.Name)
	} else {
		p.newChains = append(p.newChains, c)
	}
	p.chains = append(p.chains, c)
}

// comments returns the comments of a chain's rules.
func comments(c ruleset.Chain) (out []string) {
	for _, r := range c.Rules {
		out = append(out, signed(r))
	}
	return out
}

// maxComment leaves space for a hash within knftables.CommentLengthMax.
const maxComment = 110

// signed returns the comment of a rule, with the hash of its text. A rule without text was read back, and has it already.
func signed(r ruleset.Rule) string {
	if r.Text == "" {
		return r.Comment
	}
	sum := sha256.Sum256([]byte(r.Text))
	hash := hex.EncodeToString(sum[:5])
	if r.Comment == "" {
		return hash
	}
	return r.Comment[:min(len(r.Comment), maxComment)] + " " + hash
}

func (p *plan) compareSet(have *state, s ruleset.Set) {
	old, there := have.of(s)[s.Name]
	if !there {
		p.newSets = append(p.newSets, s)
	}
	if old.foreign {
		p.emptied, old.elements = append(p.emptied, s), nil
	}
	deleted, added := differ(old.elements, s.Elements)
	for _, e := range deleted {
		p.deleted = append(p.deleted, change{s, e})
	}
	for _, e := range added {
		p.added = append(p.added, change{s, e})
	}
}

// differ compares elements. Mostly one of many has changed, between others in the same order.
func differ(have, want []ruleset.Element) (deleted, added []ruleset.Element) {
	have, want = trimmed(have, want)
	old := make(map[ruleset.Element]ruleset.Element, len(have))
	for _, e := range have {
		old[e.Bare()] = e
	}
	for _, e := range want {
		key := e.Bare()
		was, there := old[key]
		delete(old, key)
		if there && was == e {
			continue
		}
		if there {
			deleted = append(deleted, was)
		}
		added = append(added, e)
	}
	for _, e := range have {
		if _, left := old[e.Bare()]; left {
			deleted = append(deleted, e)
		}
	}
	return deleted, added
}

// transaction returns the plan as commands of nft. Nothing is used before it is there, nor deleted while it is used.
func (p *plan) transaction(nft knftables.Interface, k kernel) (*knftables.Transaction, error) {
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{})
	for _, s := range p.newSets {
		tx.Add(declaration(s, k.family))
	}
	for _, c := range p.newChains {
		tx.Add(chainOf(c))
	}
	for _, name := range p.flush {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, s := range p.emptied {
		tx.Flush(declaration(s, k.family))
	}
	for _, c := range p.deleted {
		tx.Delete(elementOf(c, false))
	}
	rules, err := p.rules(k)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		r.command(tx)
	}
	for _, c := range p.added {
		tx.Add(elementOf(c, true))
	}
	for _, name := range p.goneMaps {
		tx.Delete(&knftables.Map{Name: name})
	}
	for _, name := range p.goneSets {
		tx.Delete(&knftables.Set{Name: name})
	}
	for _, name := range p.gone {
		tx.Delete(&knftables.Chain{Name: name})
	}
	return tx, nil
}

func chainOf(c ruleset.Chain) *knftables.Chain {
	if c.Hook == "" {
		return &knftables.Chain{Name: c.Name}
	}
	return &knftables.Chain{
		Name: c.Name, Type: knftables.PtrTo(knftables.BaseChainType(c.Type)), Hook: knftables.PtrTo(knftables.BaseChainHook(c.Hook)),
		Priority: knftables.PtrTo(knftables.BaseChainPriority(c.Priority)),
	}
}

// declaration declares a set or map.
func declaration(s ruleset.Set, family netip.Addr) knftables.Object {
	var flags []knftables.SetFlag
	if s.HasRanges() {
		flags = append(flags, knftables.IntervalFlag)
	}
	if s.IsMap() {
		return &knftables.Map{Name: s.Name, Type: s.Type(family), Flags: flags}
	}
	set := &knftables.Set{Name: s.Name, Type: s.Type(family), Flags: flags}
	if s.Timeout > 0 {
		set.Flags = []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}
		set.Timeout = knftables.PtrTo(time.Duration(s.Timeout) * time.Second)
	}
	return set
}

// elementOf returns an element, with its value if it is to be added.
func elementOf(c change, full bool) *knftables.Element {
	e := &knftables.Element{Key: c.set.KeyOf(c.Element)}
	if c.set.IsMap() {
		e.Map = c.set.Name
	} else {
		e.Set = c.set.Name
	}
	if full {
		e.Value = c.set.ValueOf(c.Element)
		if c.Comment != "" {
			e.Comment = &c.Comment
		}
	}
	return e
}

// lines formats the plan for people.
func (p *plan) lines() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, s := range p.newSets {
		add("add set %s", s.Name)
	}
	for _, name := range p.flush {
		add("flush chain %s", name)
	}
	for _, s := range p.emptied {
		add("flush set %s", s.Name)
	}
	for _, c := range p.deleted {
		add("delete element %s { %s }", c.set.Name, strings.Join(c.set.KeyOf(c.Element), " . "))
	}
	for _, c := range p.newChains {
		add("add chain %s", c.Name)
	}
	for _, c := range p.chains {
		for _, r := range c.Rules {
			add("add rule %s %s", c.Name, r.Text)
		}
	}
	for _, e := range p.edits {
		out = append(out, e.lines()...)
	}
	for _, c := range p.added {
		add("add element %s { %s }", c.set.Name, describe(c))
	}
	for _, name := range slices.Concat(p.goneMaps, p.goneSets) {
		add("delete set %s", name)
	}
	for _, name := range p.gone {
		add("delete chain %s", name)
	}
	return out
}

// describe formats an element for people.
func describe(c change) string {
	text := strings.Join(c.set.KeyOf(c.Element), " . ")
	if c.set.IsMap() {
		text += " : " + strings.Join(c.set.ValueOf(c.Element), " . ")
	}
	if c.Comment != "" {
		text += fmt.Sprintf(" comment %q", c.Comment)
	}
	return text
}

// Describe formats objects for people.
func Describe(t ruleset.Table) []string {
	return compare(&state{}, "", whole(t)).lines()
}
