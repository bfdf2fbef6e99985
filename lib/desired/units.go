package desired

import (
	"cmp"
	"strings"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// A unitKind is a kind of units: all with one prefix, or a single unit.
type unitKind struct {
	// prefix is the prefix of the units, with a slash at its end, or the name of the single unit.
	prefix string
	// rows returns the rows of a unit.
	rows func(*World, nb.Unit) ([]nb.Row, error)
	// list returns the units with rows or a Problem; nil: the kind policy.UnitPrefix lists these, too.
	list func(*World) []nb.Unit
}

// steps are the kinds of units, in the order in which an empty database gets them. The rows of a unit refer to rows of
// former steps only, and units that protect pods, or accept their probes, come before the pods.
var steps = [][]unitKind{
	{{string(topology.ClusterUnit), single((*World).clusterRows), (*World).clusterUnits}},
	{{topology.NodePrefix, named(topology.NodeOf, (*World).nodeRows), (*World).nodeUnits}},
	{
		{topology.GatewayUnitPrefix, named(topology.GatewayOf, (*World).gatewayRows), (*World).gatewayUnits},
		{topology.HostPrefix, named(topology.HostOf, (*World).hostRows), (*World).hostUnits},
		{ChassisPrefix, named(chassisOf, (*World).chassisRows), (*World).allChassisUnits},
		{string(servicecidr.Unit), single((*World).rangesRows), (*World).rangesUnits},
		{string(service.InsideUnit), single((*World).insideRows), (*World).insideUnits},
		{string(policy.LoggingUnit), (*World).policyRows, nil},
	},
	{
		{string(policy.GuardUnit), single((*World).guardRows), (*World).guardUnits},
		{policy.NodePrefix, named(policy.NodeOf, (*World).nodePolicyRows), (*World).nodePolicyUnits},
	},
	{{policy.GroupPrefix, (*World).policyRows, nil}},
	{{policy.UnitPrefix, (*World).policyRows, (*World).policyUnits}},
	{{pod.UnitPrefix, named(pod.KeyOf, (*World).podRows), (*World).podUnits}},
	{{answer.Prefix, named(answer.Of, (*World).answerRows), (*World).answerUnits}},
	{{service.ReturnPrefix, named(service.ReturnOf, (*World).returnRows), (*World).returnUnits}},
	{{service.UnitPrefix, named(service.KeyOf, (*World).serviceRows), (*World).serviceUnits}},
}

// single makes rows the function of a kind with a single unit.
func single(rows func(*World) ([]nb.Row, error)) func(*World, nb.Unit) ([]nb.Row, error) {
	return func(w *World, _ nb.Unit) ([]nb.Row, error) { return rows(w) }
}

// named makes rows the function of a kind with units that parse makes a name of. Others have no rows.
func named[N any](parse func(nb.Unit) (N, bool), rows func(*World, N) ([]nb.Row, error)) func(*World, nb.Unit) ([]nb.Row, error) {
	return func(w *World, u nb.Unit) ([]nb.Row, error) {
		name, ok := parse(u)
		if !ok {
			return nil, nil
		}
		return rows(w, name)
	}
}

// Compare orders units by their steps, and units of one step by name.
func Compare(a, b nb.Unit) int {
	return cmp.Or(step(a)-step(b), strings.Compare(string(a), string(b)))
}

// Known reports whether u is a unit of a kind listed by Units. Rows of other kinds belong to a newer version.
func Known(u nb.Unit) bool { return step(u) < len(steps) }

// step returns the index in steps of the kind of a unit: len(steps) for units of other kinds.
func step(u nb.Unit) int {
	at, _ := kindOf(u)
	return at
}

// kindOf returns the kind of a unit and its step: nil and len(steps) for units of other kinds.
func kindOf(u nb.Unit) (int, *unitKind) {
	prefix := string(u)
	if i := strings.IndexByte(prefix, '/'); i >= 0 {
		prefix = prefix[:i+1]
	}
	for at, kinds := range steps {
		for i := range kinds {
			if kinds[i].prefix == prefix {
				return at, &kinds[i]
			}
		}
	}
	return len(steps), nil
}

// Rows returns the desired rows of unit u: none if it does not exist any more, or a *Problem if a prerequisite of the rows
// is missing.
func (w *World) Rows(u nb.Unit) ([]nb.Row, error) {
	_, kind := kindOf(u)
	if kind == nil {
		return nil, nil
	}
	return kind.rows(w, u)
}

// Units lists the units with rows or a Problem.
func (w *World) Units() []nb.Unit {
	us := make([]nb.Unit, 0, 1+len(w.nodes)+len(w.pods))
	for _, kinds := range steps {
		for _, k := range kinds {
			if k.list != nil {
				us = append(us, k.list(w)...)
			}
		}
	}
	return us
}
