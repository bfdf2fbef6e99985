// Package feature has the shape of a feature: a part of the desired state with units of its own, computed from objects
// and from the facts about the network.
package feature

import (
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/nb"
)

// A Feature computes rows. Its methods for objects, such as Put and Remove, return the units to compute again.
type Feature interface {
	// Units are the kinds of its units.
	Units() []Units
	// FactsChanged records other facts, and returns the units to compute again.
	FactsChanged(facts.Change) []nb.Unit
}

// Units are a kind of units: all with one prefix, or a single unit.
type Units struct {
	// Prefix is the prefix of the units, with a slash at its end, or the name of the single unit.
	Prefix string
	// Rows returns the rows of a unit.
	Rows func(nb.Unit) ([]nb.Row, error)
	// List returns the units with rows or a Problem; nil: another kind lists these, too.
	List func() []nb.Unit
}

// Single is the kind of a single unit, which has rows while exists says so.
func Single(unit nb.Unit, rows func() ([]nb.Row, error), exists func() bool) Units {
	return Units{string(unit), func(nb.Unit) ([]nb.Row, error) { return rows() }, func() []nb.Unit {
		if !exists() {
			return nil
		}
		return []nb.Unit{unit}
	}}
}

// Named is a kind of units that parse makes a name of. Others have no rows.
func Named[N any](prefix string, parse func(nb.Unit) (N, bool), rows func(N) ([]nb.Row, error), list func() []nb.Unit) Units {
	return Units{prefix, func(u nb.Unit) ([]nb.Row, error) {
		name, ok := parse(u)
		if !ok {
			return nil, nil
		}
		return rows(name)
	}, list}
}

// UnitsOf lists the units of the keys of a map.
func UnitsOf[K comparable, V any](m map[K]V, unit func(K) nb.Unit) []nb.Unit {
	out := make([]nb.Unit, 0, len(m))
	for k := range m {
		out = append(out, unit(k))
	}
	return out
}

// A Problem is the reason why rows of a unit are missing. It is an error in the input, and a change of any other
// object may correct it.
type Problem struct {
	Reason  string // one word in CamelCase, for a Kubernetes Event
	Message string // one line: the error and the remedy
}

// Error implements error.
func (p *Problem) Error() string { return p.Message }
