package service

import (
	"fmt"
	"net/netip"
	"slices"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Ranges are the subnets from which Kubernetes takes cluster addresses, as far
// as they are configured.
type Ranges []netip.Prefix

// RangesUnit owns what all Services have in common.
const RangesUnit nb.Unit = "services"

// refusePriority is above that of every ACL that allows something.
const refusePriority = 32767

// Rows returns the ACLs that refuse, at once, what a node's pods and the node
// itself send to a cluster address and no load balancer took: it has no such
// port, no endpoint on the node, or no Service. It would leave by the default
// route otherwise.
func (r Ranges) Rows(switches []string) []nb.Row {
	var in []nb.Ref
	for _, sw := range switches {
		in = append(in, nb.Ref{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "acls"})
	}
	if len(in) == 0 {
		return nil
	}
	var rows []nb.Row
	for _, p := range r {
		name := "unknown service " + p.String()
		rows = append(rows, nb.Row{
			Table: nbdb.ACLTable, ID: string(RangesUnit) + "/" + p.String(), In: in,
			Model: &nbdb.ACL{
				Name: &name, Priority: refusePriority, Direction: nbdb.ACLDirectionFromLport, Action: nbdb.ACLActionReject,
				Match:   fmt.Sprintf("ip%d.dst == %s", 4+2*family(p.Addr()), p),
				Options: map[string]string{names.AfterLB: "true"},
			},
		})
	}
	return rows
}

// have reports whether a lies within r, or r is not known for its family.
func (r Ranges) have(a netip.Addr) bool {
	known := slices.ContainsFunc(r, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() })
	return !known || slices.ContainsFunc(r, func(p netip.Prefix) bool { return p.Contains(a) })
}
