// Package feature has the shape of a feature: a part of the desired state with units of its own, computed from objects
// and from the facts about the network.
package feature

import (
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/nb"
)

// A Feature computes rows, from facts and, if it is a Reader, from objects.
type Feature interface {
	// Units are the kinds of its units.
	Units() []Units
	// FactsChanged records other facts, and returns the units to compute again.
	FactsChanged(facts.Change) []nb.Unit
}

// A Reader is a feature that reads objects, not only facts.
type Reader interface {
	// Kinds are the kinds of its objects.
	Kinds() []kind.Kind
}

// A Step is the place of units in the order in which an empty database gets them. The rows of a unit refer to rows of
// former steps only, and units that protect pods, or accept their probes, come before the pods.
type Step int

// The steps, in their order.
const (
	Router Step = iota // of the cluster
	Switches
	Gateways // gateways, hosts, and all else that needs only router and switches
	Protection
	Groups
	Policies
	Pods
	Answers
	Replies
	Services
)

// Units are a kind of units: all with one prefix, or a single unit.
type Units struct {
	Step Step
	// Prefix is the prefix of the units, with a slash at its end, or the name of the single unit.
	Prefix string
	// Rows returns the rows of a unit.
	Rows func(nb.Unit) ([]nb.Row, error)
	// List returns the units with rows or a Problem; nil: another kind lists these, too.
	List func() []nb.Unit
}

// Single is the kind of a single unit, which has rows while exists says so.
func Single(step Step, unit nb.Unit, rows func() ([]nb.Row, error), exists func() bool) Units {
	return Units{step, string(unit), func(nb.Unit) ([]nb.Row, error) { return rows() }, func() []nb.Unit {
		if !exists() {
			return nil
		}
		return []nb.Unit{unit}
	}}
}

// Named is a kind of units that parse makes a name of. Others have no rows.
func Named[N any](step Step, prefix string, parse func(nb.Unit) (N, bool), rows func(N) ([]nb.Row, error), list func() []nb.Unit) Units {
	return Units{step, prefix, func(u nb.Unit) ([]nb.Row, error) {
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
