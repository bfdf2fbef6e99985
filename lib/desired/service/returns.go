package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// ReturnPrefix starts the units of ReturnUnit.
const ReturnPrefix = "return/"

// ReturnUnit is the unit of ReturnRows of a node.
func ReturnUnit(node string) nb.Unit { return nb.Unit(ReturnPrefix + node) }

// ReturnOf is the inverse of ReturnUnit. It reports false for units of other kinds.
func ReturnOf(u nb.Unit) (node string, ok bool) { return strings.CutPrefix(string(u), ReturnPrefix) }

// InsideUnit is the unit of InsideRows.
const InsideUnit nb.Unit = "inside"

// MaxReplies bounds the addresses and ports of endpoints with external policy Local on one node, for all Services
// together: each is a term of a match.
const MaxReplies = 2000

// returnPriority is the priority of ReturnRows, above router policies of egress subnets. insidePriority is above it:
// a match with "!=" and several subnets becomes a flow for each combination of their bits in every ovn-controller, so
// traffic inside the cluster has a policy of its own.
const returnPriority, insidePriority = 3000, 3001

// A Reply is the source of replies of an endpoint.
type Reply struct {
	Addr     netip.Addr
	Protocol corev1.Protocol
	Port     uint16
}

// Replies lists the sources of replies of r's endpoints on a node. There are none unless the external policy is
// Local, and none if r is Refused on the node.
func (r *Resolved) Replies(node string) (out []Reply) {
	if !r.Ours || !r.ExternalLocal || r.Refused[node] > 0 {
		return nil
	}
	for i, p := range r.Ports {
		for _, e := range r.Endpoints[i] {
			if e.Node == node {
				out = append(out, Reply{e.Addr, p.Protocol, e.Port})
			}
		}
	}
	return slices.Clip(out)
}

// Candidates is an upper bound of the number of Replies of s with some slices: it counts all their endpoints.
func (s Service) Candidates(all []Slice) (n int) {
	for _, p := range s.Ports {
		n += candidates(p, all)
	}
	return n
}

// RefuseOn records the nodes with Refused connections, as a Problem.
func (r *Resolved) RefuseOn(nodes map[string]int) {
	r.Refused = nodes
	if len(nodes) == 0 || !r.Ours || !r.ExternalLocal {
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(nodes)))
	r.problem("TooManyEndpoints", "service %s with policy Local takes no connections from outside on %d nodes: on node %s its endpoints have %d ports, more than older services leave of %d: use fewer ports or endpoints there", r.Key, len(nodes), first, nodes[first], MaxReplies)
}

// ReturnRows returns the router policies for replies to clients outside. A reply must leave by the host where the
// connection came in, because only there the translation of its address can be undone. With the policy Local this is
// the endpoint's own host. A node has one policy of each protocol and family, for all Services:
//
//	return/NODE/tcp4
func (at Surroundings) ReturnRows(node string, from []Reply) (rows []nb.Row) {
	ports := map[replies]map[netip.Addr][]number{} // by endpoint
	for _, r := range from {
		// Users with write access to slices might name another node than the pod's.
		if !inside(r.Addr, at.Homes[node]) {
			continue // the host itself answers, or the address is wrong
		}
		g := replies{r.Protocol, family(r.Addr)}
		if ports[g] == nil {
			ports[g] = map[netip.Addr][]number{}
		}
		ports[g][r.Addr] = append(ports[g][r.Addr], number(r.Port))
	}
	for _, hop := range at.Returns[node] {
		for _, protocol := range protocols() {
			g := replies{protocol, family(hop)}
			if len(ports[g]) == 0 {
				continue
			}
			id := fmt.Sprintf("%s/%s%d", ReturnUnit(node), strings.ToLower(string(g.protocol)), 4+2*g.f)
			rows = append(rows, policy(id, nbdb.LogicalRouterPolicy{
				Priority: returnPriority, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{hop.String()}, Match: g.match(ports[g]),
			}))
		}
	}
	return rows
}

// InsideRows returns the router policies to exempt traffic inside the cluster from ReturnRows, one of each family.
func (at Surroundings) InsideRows() (rows []nb.Row) {
	for f := range ipnet.Families() {
		if in := sameFamily(at.Inside, f); len(in) > 0 {
			rows = append(rows, policy(fmt.Sprintf("%s/ip%d", InsideUnit, 4+2*f), nbdb.LogicalRouterPolicy{
				Priority: insidePriority, Action: nbdb.LogicalRouterPolicyActionAllow, Match: fmt.Sprintf("ip%d.dst == %s", 4+2*f, oneOf(in)),
			}))
		}
	}
	return rows
}

// replies identifies a group of replies on a node.
type replies struct {
	protocol corev1.Protocol
	f        int
}

// match matches packets of endpoints from some ports each. Endpoints with the same ports share a term.
func (g replies) match(of map[netip.Addr][]number) string {
	by := map[string][]netip.Addr{}
	for a, ports := range of {
		from := g.ports(ports)
		by[from] = append(by[from], a)
	}
	var terms []string
	for ports, addrs := range by {
		slices.SortFunc(addrs, netip.Addr.Compare)
		terms = append(terms, fmt.Sprintf("ip%d.src == %s && %s", 4+2*g.f, oneOf(addrs), ports))
	}
	if slices.Sort(terms); len(terms) == 1 {
		return terms[0]
	}
	return "(" + strings.Join(terms, ") || (") + ")"
}

// ports matches packets from some ports. It sorts them.
func (g replies) ports(ports []number) string {
	slices.Sort(ports)
	return fmt.Sprintf("%s.src == %s", strings.ToLower(string(g.protocol)), oneOf(slices.Compact(ports)))
}

// policy returns a policy of the cluster router.
func policy(id string, p nbdb.LogicalRouterPolicy) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: id, Model: &p,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}

func sameFamily(subnets []netip.Prefix, f int) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range subnets {
		if family(s.Addr()) == f {
			out = append(out, s)
		}
	}
	return out
}
