package desired

import (
	"cmp"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/replyroute"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// steps are the prefixes of units, in the order in which an empty database gets them: see feature.Units. The rows of a
// unit refer to rows of former steps only, and units that protect pods, or accept their probes, come before the pods.
var steps = [][]string{
	{string(topology.ClusterUnit)},
	{topology.NodePrefix},
	{topology.GatewayUnitPrefix, topology.HostPrefix, chassisPrefix, string(servicecidr.Unit), string(replyroute.InsideUnit), string(policy.LoggingUnit)},
	{string(guard.Unit), policy.NodePrefix},
	{policy.GroupPrefix},
	{policy.UnitPrefix},
	{pod.UnitPrefix},
	{answer.Prefix},
	{replyroute.Prefix},
	{service.UnitPrefix},
}

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

// Compare orders units by their steps, and units of one step by name.
func Compare(a, b nb.Unit) int {
	return cmp.Or(step(a)-step(b), strings.Compare(string(a), string(b)))
}

// Known reports whether u is a unit of a kind listed by Units. Rows of other kinds belong to a newer version.
func Known(u nb.Unit) bool { return step(u) < len(steps) }

// step returns the index in steps of the kind of a unit: len(steps) for units of other kinds.
func step(u nb.Unit) int {
	prefix := prefixOf(u)
	for at, prefixes := range steps {
		if slices.Contains(prefixes, prefix) {
			return at
		}
	}
	return len(steps)
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
	for _, prefixes := range steps {
		for _, p := range prefixes {
			if list := w.units[p].List; list != nil {
				us = append(us, list()...)
			}
		}
	}
	return us
}
