package desired

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/nb"
)

// allUnits returns the kinds of units of all features, by their prefixes.
func (w *World) allUnits() map[string]feature.Units {
	out := map[string]feature.Units{}
	for _, f := range w.features {
		for _, u := range f.Units() {
			out[u.Prefix] = u
		}
	}
	return out
}

// Compare orders units by their steps, see feature.Step, and units of one step by name.
func Compare(a, b nb.Unit) int {
	return cmp.Or(cmp.Compare(step(a), step(b)), strings.Compare(string(a), string(b)))
}

// Related reports whether the rows of u should change in one transaction with those of units before it: a policy's, and those of
// its pods.
func Related(u nb.Unit) bool { return step(u) <= int(feature.Pods) }

// Known reports whether u is a unit of a kind listed by Units. Rows of other kinds belong to a newer version.
func Known(u nb.Unit) bool {
	_, ok := steps[prefixOf(u)]
	return ok
}

// steps are the steps of all kinds of units, by their prefixes.
var steps = stepsOf(NewWorld())

func stepsOf(w *World) map[string]feature.Step {
	out := map[string]feature.Step{}
	for prefix, u := range w.units {
		out[prefix] = u.Step
	}
	return out
}

// step returns the step of a unit: units of unknown kinds come last.
func step(u nb.Unit) int {
	if s, ok := steps[prefixOf(u)]; ok {
		return int(s)
	}
	return math.MaxInt
}

// prefixOf returns the prefix of a unit, with a slash at its end, or the name of a single unit.
func prefixOf(u nb.Unit) string {
	if i := strings.IndexByte(string(u), '/'); i >= 0 {
		return string(u[:i+1])
	}
	return string(u)
}

// Rows returns the desired rows of unit u: none if it does not exist any more, or a *feature.Problem if a prerequisite of
// the rows is missing.
func (w *World) Rows(u nb.Unit) ([]nb.Row, error) {
	kind, ok := w.units[prefixOf(u)]
	if !ok {
		return nil, nil
	}
	return kind.Rows(u)
}

// Units lists the units with rows or a Problem.
func (w *World) Units() []nb.Unit {
	us := make([]nb.Unit, 0, 1+w.Pods.Len())
	for _, u := range slices.SortedFunc(maps.Values(w.units), compareKinds) {
		if u.List != nil {
			us = append(us, u.List()...)
		}
	}
	return us
}

func compareKinds(a, b feature.Units) int {
	return cmp.Or(cmp.Compare(a.Step, b.Step), strings.Compare(a.Prefix, b.Prefix))
}
