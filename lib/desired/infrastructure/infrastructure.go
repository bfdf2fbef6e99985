// Package infrastructure has the rows that follow from the facts about the network alone: the cluster router, the nodes with
// their addresses, the gateways, and the subnets of Services.
package infrastructure

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Infrastructure is the feature.
type Infrastructure struct {
	facts *facts.Index
	// marks returns the positions in a node's subnets where the allocation of addresses resumes after a restart.
	marks func(sw string) []netip.Addr
}

// New returns the infrastructure of an index of facts.
func New(x *facts.Index, marks func(sw string) []netip.Addr) *Infrastructure {
	return &Infrastructure{x, marks}
}

// Units implements feature.Feature.
func (n *Infrastructure) Units() []feature.Units {
	now := n.facts.Now
	return []feature.Units{
		feature.Single(feature.Router, topology.ClusterUnit, n.clusterRows, func() bool { return now().Cluster.Router != "" }),
		feature.Named(feature.Switches, topology.NodePrefix, topology.NodeOf, n.nodeRows, n.nodeUnits),
		feature.Named(feature.Gateways, topology.GatewayUnitPrefix, topology.GatewayOf, n.gatewayRows, func() []nb.Unit { return feature.UnitsOf(now().Cluster.Gateways, topology.GatewayUnit) }),
		feature.Named(feature.Gateways, topology.HostPrefix, topology.HostOf, n.hostRows, n.hostUnits),
		feature.Single(feature.Gateways, servicecidr.Unit, n.rangesRows, func() bool { return len(now().Ranges)+len(now().CIDRs) > 0 }),
	}
}

// FactsChanged implements feature.Feature.
func (n *Infrastructure) FactsChanged(c facts.Change) (touched []nb.Unit) {
	was, now := c.Was.Cluster, c.Now.Cluster
	if c.Was.UID != c.Now.UID || c.OtherNetworks() {
		// The rows of the unit have other topology only as a record, without comparison: see clusterRows.
		touched = append(touched, topology.ClusterUnit)
	}
	if c.Nodes {
		for name := range facts.OtherKeys(c.Was.Nodes, c.Now.Nodes, facts.Same) {
			touched = append(touched, topology.NodeUnit(name))
		}
	}
	for name := range facts.OtherKeys(c.Was.Outages, c.Now.Outages, facts.Same) {
		touched = append(touched, topology.GatewayUnit(name))
	}
	for _, sw := range c.Decided {
		touched = append(touched, topology.HostUnit(sw)) // at least its Problem may differ
	}
	touched = append(touched, n.changedRanges(c)...)
	if !c.Topology || was.Equal(now) {
		return touched
	}
	for _, name := range topology.ChangedGateways(was, now) {
		touched = append(touched, topology.GatewayUnit(name))
	}
	for name := range c.ChangedSubnets() {
		touched = append(touched, topology.NodeUnit(name), servicecidr.Unit)
	}
	return append(touched, n.changedHosts(was, now)...)
}

// changedRanges returns the units affected by other subnets of Services.
func (n *Infrastructure) changedRanges(c facts.Change) []nb.Unit {
	switch {
	case !c.Surroundings:
	case !slices.Equal(c.Was.Ranges, c.Now.Ranges) || !maps.EqualFunc(c.Was.CIDRs, c.Now.CIDRs, slices.Equal):
		return append(n.hostUnits(), servicecidr.Unit)
	case badServiceCIDR(c.Was) != badServiceCIDR(c.Now): // its subnet may lie within a configured one
		return []nb.Unit{servicecidr.Unit}
	}
	return nil
}

// changedHosts returns the units of hosts affected by a change of the topology.
func (n *Infrastructure) changedHosts(was, now topology.Cluster) (touched []nb.Unit) {
	all := !slices.Equal(was.Subnets, now.Subnets) || !slices.Equal(was.Join, now.Join)
	for _, family := range ipnet.Families() {
		all = all || was.PinnedByPolicy(family) != now.PinnedByPolicy(family)
	}
	for _, sw := range n.facts.Reported() {
		if all || !slices.Equal(was.Nodes[sw], now.Nodes[sw]) {
			touched = append(touched, topology.HostUnit(sw))
		}
	}
	return touched
}

// clusterRows leaves the topology recorded on the cluster router to the one-shot commands: it may be newer there.
func (n *Infrastructure) clusterRows() ([]nb.Row, error) {
	f := n.facts.Now()
	if f.Cluster.Router == "" {
		return nil, nil
	}
	rows := f.Cluster.Rows()
	for i := range rows {
		if rows[i].ID == names.ClusterRouter {
			rows[i].OnlyNew = slices.Collect(maps.Keys(f.Cluster.Registry()))
			rows[i].OnlyNew = append(rows[i].OnlyNew, names.NodePrefix, names.ChassisPrefix, names.GatewayPrefix, names.SubnetLengths, names.NumberedBy, names.NextSubnets)
			if f.UID != "" {
				rows[i].Model.(*nbdb.LogicalRouter).ExternalIDs[names.KubernetesUID] = f.UID
			}
		}
	}
	return rows, nil
}

func (n *Infrastructure) nodeRows(name string) ([]nb.Row, error) {
	f := n.facts.Now()
	if rows := f.Cluster.NodeRows(name); rows != nil {
		addMarks(name, n.marks(name), rows)
		return rows, nil
	}
	if f.Nodes[name] && f.Cluster.NumberedBy == "" { // else that program gives it a subnet, or tells why not
		return nil, &feature.Problem{Reason: "NoLogicalSwitch", Message: fmt.Sprintf("node %s has no logical switch, pods cannot run on it: run \"ovn-k8s-overlay minion-init --node-name=%s\" on it", name, name)}
	}
	return nil, nil
}

// addMarks adds the marks of a node's pool to its rows. The commands write these rows, too, but leave the marks
// alone.
func addMarks(name string, marks []netip.Addr, rows []nb.Row) {
	for i := range rows {
		if rows[i].ID != names.ManagementPort(name) {
			continue
		}
		rows[i].OnlyNew = nil
		if marks != nil {
			port := rows[i].Model.(*nbdb.LogicalSwitchPort)
			port.ExternalIDs = map[string]string{names.NextAddress: pod.Marks{Next: marks}.String()}
		}
	}
}

// nodeUnits lists the units of nodes of the topology and of Kubernetes.
func (n *Infrastructure) nodeUnits() []nb.Unit {
	f, all := n.facts.Now(), map[string]bool{}
	for name := range f.Cluster.Nodes {
		all[name] = true
	}
	maps.Copy(all, f.Nodes)
	return feature.UnitsOf(all, topology.NodeUnit)
}

// gatewayRows returns the rows of a gateway, without the routes to it that its outage cuts.
func (n *Infrastructure) gatewayRows(name string) ([]nb.Row, error) {
	f := n.facts.Now()
	return append(f.Cluster.GatewayRows(name), f.Cluster.GatewayRoutesBut(name, f.Outages[name].Cuts)...), nil
}

// hostRows returns the routes to a node's own addresses. The Problem names its other claims.
func (n *Infrastructure) hostRows(sw string) ([]nb.Row, error) {
	f := n.facts.Now()
	rows := f.Cluster.HostRows(sw, f.Addresses[sw])
	if why := n.facts.Refusal(sw); why != "" {
		return rows, &feature.Problem{Reason: "BadNodeAddress", Message: why}
	}
	return rows, nil
}

func (n *Infrastructure) hostUnits() (out []nb.Unit) {
	for _, sw := range n.facts.Reported() {
		out = append(out, topology.HostUnit(sw))
	}
	return out
}

// rangesRows returns the rows shared by all Services.
func (n *Infrastructure) rangesRows() ([]nb.Row, error) {
	f := n.facts.Now()
	rows := f.Ranges.Rows(f.Switches)
	if why := badServiceCIDR(f); why != "" {
		return rows, &feature.Problem{Reason: "BadServiceCIDR", Message: why}
	}
	return rows, nil
}

// badServiceCIDR is the reason of facts.Facts.BadServiceCIDR.
func badServiceCIDR(f *facts.Facts) string {
	_, why := f.BadServiceCIDR()
	return why
}
