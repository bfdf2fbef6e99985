// Package replyroute routes replies of endpoints to clients outside. With external policy Local a reply must leave by the
// host where the connection came in, because only there the translation of its address can be undone: this is the
// endpoint's own host.
package replyroute

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Prefix starts the units of nodes.
const Prefix = "return/"

// Unit is the unit of the routes for replies from a node.
func Unit(node string) nb.Unit { return nb.Unit(Prefix + node) }

// NodeOf is the inverse of Unit. It reports false for units of other kinds.
func NodeOf(u nb.Unit) (node string, ok bool) { return strings.CutPrefix(string(u), Prefix) }

// InsideUnit is the unit of the exemption for traffic inside the cluster.
const InsideUnit nb.Unit = "inside"

// returnPriority is the priority of rows, above router policies of egress subnets. insidePriority is above it:
// a match with "!=" and several subnets becomes a flow for each combination of their bits in every ovn-controller, so
// traffic inside the cluster has a policy of its own.
const returnPriority, insidePriority = 3000, 3001

// A group is replies of one protocol and family on a node.
type group struct {
	protocol corev1.Protocol
	f        int
}

// rows returns the router policies for the replies of a node, whose pods have some subnets, by some next hops. A node
// has one policy of each protocol and family, for all Services:
//
//	return/NODE/tcp4
func rows(node string, subnets []netip.Prefix, hops []netip.Addr, from []service.Reply) (rows []nb.Row) {
	ports := map[group]map[netip.Addr][]uint16{} // by endpoint
	for _, r := range from {
		// Users with write access to slices might name another node than the pod's.
		if !slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(r.Addr) }) {
			continue // the host itself answers, or the address is wrong
		}
		g := group{r.Protocol, ipnet.Family(r.Addr)}
		if ports[g] == nil {
			ports[g] = map[netip.Addr][]uint16{}
		}
		ports[g][r.Addr] = append(ports[g][r.Addr], r.Port)
	}
	for _, hop := range hops {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			g := group{protocol, ipnet.Family(hop)}
			if len(ports[g]) == 0 {
				continue
			}
			id := fmt.Sprintf("%s/%s%d", Unit(node), strings.ToLower(string(g.protocol)), 4+2*g.f)
			rows = append(rows, policy(id, nbdb.LogicalRouterPolicy{
				Priority: returnPriority, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{hop.String()}, Match: g.match(ports[g]),
			}))
		}
	}
	return rows
}

// insideRows returns the router policies to exempt traffic to subnets inside the cluster from rows, one of each family.
func insideRows(subnets []netip.Prefix) (rows []nb.Row) {
	for f := range ipnet.Families() {
		if in := ipnet.OfFamily(subnets, f); len(in) > 0 {
			rows = append(rows, policy(fmt.Sprintf("%s/ip%d", InsideUnit, 4+2*f), nbdb.LogicalRouterPolicy{
				Priority: insidePriority, Action: nbdb.LogicalRouterPolicyActionAllow, Match: fmt.Sprintf("ip%d.dst == %s", 4+2*f, nb.OneOf(in)),
			}))
		}
	}
	return rows
}

// match matches packets of endpoints from some ports each, which it sorts. Endpoints with the same ports share a term.
func (g group) match(of map[netip.Addr][]uint16) string {
	by := map[string][]netip.Addr{}
	for a, ports := range of {
		slices.Sort(ports)
		from := nb.MatchPorts("src", map[corev1.Protocol][]uint16{g.protocol: slices.Compact(ports)})
		by[from] = append(by[from], a)
	}
	var terms []string
	for ports, addrs := range by {
		slices.SortFunc(addrs, netip.Addr.Compare)
		terms = append(terms, fmt.Sprintf("ip%d.src == %s && %s", 4+2*g.f, nb.OneOf(addrs), ports))
	}
	if slices.Sort(terms); len(terms) == 1 {
		return terms[0]
	}
	return "(" + strings.Join(terms, ") || (") + ")"
}

// policy returns a policy of the cluster router.
func policy(id string, p nbdb.LogicalRouterPolicy) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: id, Model: &p,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}
