package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// HostPrefix starts the units of nodes' own addresses.
const HostPrefix = "host/"

// HostUnit returns the owner of the routes to a node's own addresses. The watcher
// writes them, since it knows the addresses; the commands write the rows of NodeUnit.
func HostUnit(node string) nb.Unit { return nb.Unit(HostPrefix + names.NodeSwitch(node)) }

// HostOf is the inverse of HostUnit. It reports false for units of other kinds.
func HostOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), HostPrefix) }

// HostRows returns the rows of HostUnit(node): a route to each of the node's own
// addresses by its management port. So pods reach nodes with their own addresses, with
// or without a gateway, and answers come back the same way.
func (c Cluster) HostRows(node string, addrs []netip.Addr) []nb.Row {
	sw := names.NodeSwitch(node)
	var rows []nb.Row
	for _, m := range management(c.Nodes[sw]) {
		for _, a := range addrs {
			if !ipnet.SameFamily(a, m) || !c.inside().excludes(a) {
				continue
			}
			rows = append(rows, route(names.ClusterRouter, HostPrefix+sw+"/"+a.String(), nbdb.LogicalRouterStaticRoute{IPPrefix: a.String(), Nexthop: m.String()}))
			if c.PinnedByPolicy(a) {
				rows = append(rows, unpinned(sw, a))
			}
		}
	}
	return rows
}

// management returns the addresses of the management port of a node with some subnets.
func management(subnets []netip.Prefix) (out []netip.Addr) {
	if len(subnets) == 0 {
		return nil
	}
	for _, p := range ManagementPort(subnets).IPs {
		out = append(out, p.Addr())
	}
	return out
}

// excludes reports whether an address can be a node's own: global unicast, and not
// of the cluster's own networks.
func (in inside) excludes(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !slices.ContainsFunc(slices.Concat(in.pods, in.join), func(s netip.Prefix) bool { return s.Contains(a) })
}

// unpinned returns the router policy that exempts packets to a node from egress subnets.
func unpinned(sw string, a netip.Addr) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: HostPrefix + sw + "/" + a.String(),
		Model: &nbdb.LogicalRouterPolicy{
			Priority: pinPriority + 1, Action: nbdb.LogicalRouterPolicyActionAllow, Match: fmt.Sprintf("%s.dst == %s", ipMatch(a), a),
		},
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}
