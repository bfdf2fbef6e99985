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

// add adds the edit to a transaction. A rule is added before the next one that is kept. The kernel knows the rules by
// handles: it is asked for them now, and the transaction fails if one is gone by then.
func (e edit) add(tx *knftables.Transaction, k kernel) error {
	rules, err := k.rules(e.chain)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(rules, e.old, func(r rule, comment string) bool { return r.comment == comment }) {
		return fmt.Errorf("rules of chain %s have changed meanwhile", e.chain)
	}
	var waiting []*ruleset.Rule
	for _, s := range e.steps {
		if s.add != nil {
			waiting = append(waiting, s.add)
			continue
		}
		handle := knftables.PtrTo(int(rules[0].handle))
		rules = rules[1:]
		if s.delete {
			tx.Delete(&knftables.Rule{Chain: e.chain, Handle: handle})
			continue
		}
		for _, r := range waiting {
			tx.Insert(&knftables.Rule{Chain: e.chain, Handle: handle, Rule: r.Text, Comment: knftables.PtrTo(signed(*r))})
		}
		waiting = nil
	}
	for _, r := range waiting {
		tx.Add(&knftables.Rule{Chain: e.chain, Rule: r.Text, Comment: knftables.PtrTo(signed(*r))})
	}
	return nil
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
