package desired

import (
	"cmp"
	"strings"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// steps are the kinds of units in the order of writing to an empty database. Rows of a unit refer only to rows of
// earlier steps. Guards and ACLs for probes come before the pods.
var steps = [][]string{
	{string(topology.ClusterUnit)},
	{topology.NodePrefix},
	{topology.GatewayUnitPrefix, topology.HostPrefix, ChassisPrefix, string(service.RangesUnit), string(service.InsideUnit), string(policy.LoggingUnit)},
	{string(policy.GuardUnit), policy.NodePrefix},
	{policy.GroupPrefix},
	{policy.UnitPrefix},
	{pod.UnitPrefix},
	{answer.Prefix},
	{service.ReturnPrefix},
	{service.UnitPrefix},
}

// Compare orders units by their steps, and units of one kind by name.
func Compare(a, b nb.Unit) int {
	return cmp.Or(step(a)-step(b), strings.Compare(string(a), string(b)))
}

// Known reports whether u is a unit of a kind listed by Units. Rows of other kinds belong to a newer version.
func Known(u nb.Unit) bool { return step(u) < len(steps) }

// step returns the index in steps of the kind of a unit: the last for units of other kinds.
func step(u nb.Unit) int {
	kind := string(u)
	if i := strings.IndexByte(kind, '/'); i >= 0 {
		kind = kind[:i+1]
	}
	for i, kinds := range steps {
		for _, k := range kinds {
			if k == kind {
				return i
			}
		}
	}
	return len(steps)
}
