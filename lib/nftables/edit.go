package nftables

import (
	"fmt"
	"slices"

	"sigs.k8s.io/knftables"

	"ovn-k8s/lib/ruleset"
)

// An edit changes some rules of a chain and keeps others.
type edit struct {
	chain string
	old   []string // comments of all rules before
	steps []step
	kept  int
}

// A step keeps or deletes the next of the former rules, or adds a rule.
type step struct {
	add     *ruleset.Rule
	comment string // of a former rule
	delete  bool
}

// edited compares the rules of a chain, which are known by their comments. Mostly one of many has changed.
func edited(c ruleset.Chain, old, comments []string) edit {
	e := edit{chain: c.Name, old: old}
	places := map[string][]int{}
	for i, comment := range old {
		places[comment] = append(places[comment], i)
	}
	at := 0 // the first of the former rules that is neither kept nor deleted
	for i, comment := range comments {
		next := slices.IndexFunc(places[comment], func(place int) bool { return place >= at })
		if next < 0 {
			e.steps = append(e.steps, step{add: &c.Rules[i]})
			continue
		}
		for place := places[comment][next]; at < place; at++ {
			e.steps = append(e.steps, step{comment: old[at], delete: true})
		}
		e.steps = append(e.steps, step{comment: comment})
		e.kept++
		at++
	}
	for ; at < len(old); at++ {
		e.steps = append(e.steps, step{comment: old[at], delete: true})
	}
	return e
}

// A ruleChange deletes a rule, or adds one.
type ruleChange struct {
	chain  string
	handle uint64        // of the rule to delete or to add before; 0 adds the last one
	add    *ruleset.Rule // nil deletes
}

// changes returns the changes of rules. A rule is added before the next one that is kept. The kernel knows the rules by
// handles: it is asked for them now, and a transaction fails if one is gone by then.
func (e edit) changes(k kernel) (out []ruleChange, err error) {
	rules, err := k.rules(e.chain)
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(rules, e.old, func(r rule, comment string) bool { return r.comment == comment }) {
		return nil, fmt.Errorf("rules of chain %s have changed meanwhile", e.chain)
	}
	var waiting []*ruleset.Rule
	for _, s := range e.steps {
		if s.add != nil {
			waiting = append(waiting, s.add)
			continue
		}
		handle := rules[0].handle
		rules = rules[1:]
		if s.delete {
			out = append(out, ruleChange{e.chain, handle, nil})
			continue
		}
		for _, r := range waiting {
			out = append(out, ruleChange{e.chain, handle, r})
		}
		waiting = nil
	}
	for _, r := range waiting {
		out = append(out, ruleChange{e.chain, 0, r})
	}
	return out, nil
}

// command adds the change to a transaction of nft.
func (c ruleChange) command(tx *knftables.Transaction) {
	r := &knftables.Rule{Chain: c.chain}
	if c.handle != 0 {
		r.Handle = knftables.PtrTo(int(c.handle))
	}
	if c.add == nil {
		tx.Delete(r)
		return
	}
	r.Rule, r.Comment = c.add.Text, knftables.PtrTo(signed(*c.add))
	if c.handle != 0 {
		tx.Insert(r)
	} else {
		tx.Add(r)
	}
}

// lines formats the edit for people.
func (e edit) lines() (out []string) {
	for _, s := range e.steps {
		switch {
		case s.add != nil:
			out = append(out, fmt.Sprintf("add rule %s %s", e.chain, s.add.Text))
		case s.delete:
			out = append(out, fmt.Sprintf("delete rule %s %s", e.chain, s.comment))
		}
	}
	return out
}
