package policy

import (
	"slices"
	"strings"

	"ovn-k8s/lib/nb"
)

// Policies beyond a limit still isolate their pods. So that nobody makes groups without end by them, all those of a namespace
// share one port group for each direction: a pod is in it if one of them isolates it.

// refusedPrefix starts the units of these port groups.
const refusedPrefix = GroupPrefix + "refused/"

func (n *namespace) refusedUnit() nb.Unit { return nb.Unit(refusedPrefix + n.name) }

// refusedGroup names the port group of a direction: names of namespaces have no underscores.
func (n *namespace) refusedGroup(d direction) string {
	return "np_" + strings.ReplaceAll(n.name, "-", "_") + "_refused_" + d.String()
}

// refusedRows returns the port groups, and the ACLs that deny.
func (n *namespace) refusedRows() (rows []nb.Row) {
	for _, d := range []direction{ingress, egress} {
		if slices.ContainsFunc(n.policies, func(s *state) bool { return s.refused() && s.isolates[d] }) {
			name := n.refusedGroup(d)
			rows = append(rows, portGroupRow(name, "all pods that policies beyond a limit isolate in namespace "+n.name), n.deny(d, name, "refused policies"))
		}
	}
	return rows
}
