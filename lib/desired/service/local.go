package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// AddressVariable is the variable that holds, on each host, the host's address
// number i of a family, of which 0 is IPv4.
func AddressVariable(family, i int) string {
	return fmt.Sprintf("%s%d_%d", addressPrefix, 4+2*family, i)
}

// NoAddress is what AddressVariable holds where a host has fewer addresses than others: ovn-controller logs an error
// for each frontend whose variable is missing.
func NoAddress(family int) netip.Addr { return families()[family] }

// addressPrefix starts AddressVariable.
const addressPrefix = names.VariablePrefix + "address"

// variable is a variable of r. Names of Kubernetes have no underscore, and those
// of variables no dash.
func (r *Resolved) variable(words ...string) string {
	all := append([]string{r.Namespace, r.Name}, words...)
	return names.VariablePrefix + strings.ReplaceAll(strings.ToLower(strings.Join(all, ".")), "-", "_")
}

func (r *Resolved) portVariable(p Port, kind string, f int) string {
	return r.variable(string(p.Protocol), fmt.Sprint(p.Port), fmt.Sprintf("%s%d", kind, 4+2*f))
}

// backendsVariable holds a node's own endpoints of a cluster address.
func (r *Resolved) backendsVariable(p Port, f int) string { return r.portVariable(p, "near", f) }

// localVariable holds the endpoints on a node itself.
func (r *Resolved) localVariable(p Port, f int) string { return r.portVariable(p, "local", f) }

// addressVariable holds an IPv6 address of r. OVN takes an IPv4 address as it is
// where a variable may be, but no IPv6 address.
func (r *Resolved) addressVariable(a netip.Addr) string {
	return r.variable("vip." + strings.ReplaceAll(a.StringExpanded(), ":", "_"))
}

// templateKey is the key of a way in of a template.
func (r *Resolved) templateKey(a netip.Addr, port uint16) string {
	if a.Is4() {
		return key(a, port)
	}
	return fmt.Sprintf("^%s:%d", r.addressVariable(a), port)
}

// ByNode reports whether r has Variables.
func (r *Resolved) ByNode() bool { return r.Ours && (r.InternalLocal || r.ExternalLocal) }

// Variables are the template variables of r on a node, of whose endpoints it needs no others; byGateway is
// ByGateway of all. Where there is no endpoint for a frontend there is no variable, so that the frontend is not there.
func (r *Resolved) Variables(node string, byGateway bool) map[string]string {
	if !r.ByNode() {
		return nil
	}
	out := map[string]string{}
	for i, p := range r.Ports {
		for f, any := range families() {
			local := r.Endpoints[i].Of(any).Local(node)
			if len(local) == 0 {
				continue
			}
			if r.ExternalLocal && !byGateway {
				r.assign(out, r.localVariable(p, f), local, r.Outside)
			}
			if r.InternalLocal {
				r.assign(out, r.backendsVariable(p, f), local, r.ClusterIPs)
			}
		}
	}
	return out
}

// assign sets the variable of some endpoints, and those of the IPv6 addresses at
// which they are reached.
func (r *Resolved) assign(out map[string]string, name string, es Endpoints, at []netip.Addr) {
	out[name] = r.backends(es)
	for _, a := range at {
		if !a.Is4() && !es[0].Addr.Is4() {
			out[r.addressVariable(a)] = a.String()
		}
	}
}

// returnPriority is that of the policies that returns makes. It is above those
// that pin subnets to gateways. insidePriority is above it: a match with "!=" and
// several subnets becomes a flow for each combination of their bits in every
// ovn-controller, so what stays inside has a policy of its own.
const returnPriority, insidePriority = 3000, 3001

// returns returns the policies that lead replies to clients outside back to the
// host where they came in: there the address was changed, and nowhere else can
// it be changed back. With the policy Local that is the endpoint's own host. What
// stays inside is left alone. There is one of each node, protocol and family,
// whatever the number of ports.
func (r *Resolved) returns(at Surroundings) []nb.Row {
	from := map[replies]map[netip.Addr][]number{} // ports by endpoint
	for i, p := range r.Ports {
		for _, e := range r.Endpoints[i] {
			f := family(e.Addr)
			hop := slices.IndexFunc(at.Returns[e.Node], func(a netip.Addr) bool { return family(a) == f })
			// Whoever writes a slice might name another node than that of the pod.
			if hop < 0 || !inside(e.Addr, at.Homes[e.Node]) {
				continue // the host itself answers, or nobody can
			}
			g := replies{e.Node, at.Returns[e.Node][hop], p.Protocol, f}
			if from[g] == nil {
				from[g] = map[netip.Addr][]number{}
			}
			if !slices.Contains(from[g][e.Addr], number(e.Port)) {
				from[g][e.Addr] = append(from[g][e.Addr], number(e.Port))
			}
		}
	}
	rows, all := map[string]nb.Row{}, map[replies][]number{}
	for g, of := range from {
		id := fmt.Sprintf("%s/return%d/%s", r.balancerName(g.protocol), 4+2*g.f, g.node)
		rows[id] = policy(id, nbdb.LogicalRouterPolicy{
			Priority: returnPriority, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{g.hop.String()}, Match: g.match(of),
		})
		any := replies{protocol: g.protocol, f: g.f}
		for _, ports := range of {
			all[any] = append(all[any], ports...)
		}
	}
	for g, ports := range all {
		if in := sameFamily(at.Inside, g.f); len(in) > 0 {
			id := fmt.Sprintf("%s/inside%d", r.balancerName(g.protocol), 4+2*g.f)
			rows[id] = policy(id, nbdb.LogicalRouterPolicy{
				Priority: insidePriority, Action: nbdb.LogicalRouterPolicyActionAllow,
				Match: fmt.Sprintf("%s && ip%d.dst == %s", g.ports(ports), 4+2*g.f, oneOf(in)),
			})
		}
	}
	var sorted []nb.Row
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		sorted = append(sorted, rows[id])
	}
	return sorted
}

// replies are what the endpoints of a node answer.
type replies struct {
	node     string
	hop      netip.Addr
	protocol corev1.Protocol
	f        int
}

// match matches what endpoints send from some ports each. Those with the same ports share a term.
func (g replies) match(of map[netip.Addr][]number) string {
	by := map[string][]netip.Addr{}
	for a, ports := range of {
		by[g.ports(ports)] = append(by[g.ports(ports)], a)
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

// ports matches what comes from some ports.
func (g replies) ports(ports []number) string {
	slices.Sort(ports)
	return fmt.Sprintf("%s.src == %s", strings.ToLower(string(g.protocol)), oneOf(slices.Compact(ports)))
}

// policy is one of the cluster router.
func policy(id string, p nbdb.LogicalRouterPolicy) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: id, Model: &p,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}

func inside(a netip.Addr, subnets []netip.Prefix) bool {
	return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) })
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
