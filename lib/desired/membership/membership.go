// Package membership decides how nodes and gateways join and leave a cluster: the topology afterwards, or the reason
// against it.
package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// errNoRouter means that there is no cluster. Its text is that of the Python era: scripts may match it.
var errNoRouter = errors.New("K8S_CLUSTER_ROUTER not found: run master-init first")

// A State is the topology in the Northbound database.
type State struct {
	Router   *nbdb.LogicalRouter // the cluster router; nil if there is none
	Switches []nbdb.LogicalSwitch
	Ports    []nbdb.LogicalSwitchPort
	// RouterPorts are the ports of all routers.
	RouterPorts []nbdb.LogicalRouterPort

	record  topology.Cluster  // the router's
	invalid error             // about record
	saved   *topology.Cluster // see WithCopy
}

// NewState finds the topology in rows. Of routers it takes all, or those that may be the cluster router.
func NewState(routers []nbdb.LogicalRouter, switches []nbdb.LogicalSwitch, ports []nbdb.LogicalSwitchPort, routerPorts []nbdb.LogicalRouterPort) (State, error) {
	s := State{Switches: switches, Ports: ports, RouterPorts: routerPorts}
	routers = slices.DeleteFunc(routers, func(r nbdb.LogicalRouter) bool {
		ids := r.ExternalIDs
		return ids[names.ClusterRouterTag] != "yes" && ids[names.ID] != names.ClusterRouter && r.Name != names.ClusterRouter
	})
	if len(routers) > 1 {
		list := make([]string, len(routers))
		for i, r := range routers {
			list[i] = fmt.Sprintf("%s (%s)", r.Name, r.UUID)
		}
		slices.Sort(list)
		return s, fmt.Errorf("there are %d cluster routers, %s: delete all but one, or take external_ids:%s away from them",
			len(routers), strings.Join(list, " and "), names.ClusterRouterTag)
	}
	if len(routers) == 0 {
		return s, nil
	}
	s.Router = &routers[0]
	var join *nbdb.LogicalRouterPort
	for i, p := range s.RouterPorts {
		if p.Name == names.RouterToJoin(s.Router.Name) {
			join = &s.RouterPorts[i]
		}
	}
	s.record, s.invalid = topology.FromRouter(s.Router, join, nil)
	return s, nil
}

// Recorded reports whether the router carries our record of the topology. A router of the Python era does not.
func (s State) Recorded() bool {
	return s.Router != nil && s.Router.ExternalIDs[names.ID] == names.ClusterRouter
}

// Topology returns the recorded topology. An invalid record counts as none.
func (s State) Topology() topology.Cluster {
	if !s.Recorded() {
		return topology.Cluster{}
	}
	return s.record
}

// Unfit is the error about gateways left out of the topology, if nothing else is wrong in the record.
func (s State) Unfit() error {
	if errors.As(s.invalid, new(topology.Unfit)) {
		return s.invalid
	}
	return nil
}

// A Change computes the desired topology from the present one. It is called again after a conflict with another
// client.
type Change func(State) (topology.Cluster, error)

// Rows returns the desired rows of the cluster's unit, of unit, and of each node and gateway changed since before; those
// of one that is gone are nil. Without a router it returns the rows of unit only.
func Rows(before, c topology.Cluster, unit nb.Unit) map[nb.Unit][]nb.Row {
	want := map[nb.Unit][]nb.Row{unit: unitRows(c, unit)}
	if c.Router == "" {
		return want
	}
	want[topology.ClusterUnit] = c.Rows()
	if node, ok := topology.NodeOf(unit); ok && c.Nodes[node] == nil {
		want[topology.HostUnit(node)] = nil
	}
	for node := range before.Nodes {
		if c.Nodes[node] == nil {
			want[topology.NodeUnit(node)], want[topology.HostUnit(node)] = nil, nil
		}
	}
	for node, subnets := range c.Nodes {
		if !slices.Equal(before.Nodes[node], subnets) { // it lost a family, for example
			want[topology.NodeUnit(node)] = c.NodeRows(node)
		}
	}
	for _, name := range topology.ChangedGateways(before, c) {
		u := topology.GatewayUnit(name)
		if now := unitRows(c, u); fmt.Sprint(unitRows(before, u)) != fmt.Sprint(now) {
			want[u] = now
		}
	}
	return want
}

// unitRows returns the desired rows of a node or gateway.
func unitRows(c topology.Cluster, u nb.Unit) []nb.Row {
	if node, ok := topology.NodeOf(u); ok {
		return c.NodeRows(node)
	}
	gateway, _ := topology.GatewayOf(u)
	return slices.Concat(c.GatewayRows(gateway), c.GatewayRoutes(gateway))
}

// A Network is the cluster's part of a request.
type Network struct {
	Subnets []netip.Prefix // of all pods, IPv4 first
	Join    []netip.Prefix // configured for the join switch; nil: the cluster's, or the default of a new cluster
}

// required returns the existing cluster, with the subnets of n.
func (n Network) required(s State) (topology.Cluster, error) {
	if s.Router == nil {
		return topology.Cluster{}, errNoRouter
	}
	c, err := n.existing(s)
	if err == nil && !slices.Equal(c.Subnets, n.Subnets) {
		err = fmt.Errorf("--cluster-ip-subnet is %s, but the cluster's is %s: give the same, or change it by master-init", ipnet.Join(n.Subnets), ipnet.Join(c.Subnets))
	}
	other := func(p netip.Prefix) bool {
		return slices.ContainsFunc(c.Join, func(q netip.Prefix) bool { return p != q && ipnet.SameFamily(p.Addr(), q.Addr()) })
	}
	if slices.ContainsFunc(n.Join, other) {
		err = errors.Join(err, fmt.Errorf("join-subnet is %s, but the cluster's is %s: set the same, or none, or change it by master-init", ipnet.Join(n.Join), ipnet.Join(c.Join)))
	}
	return c, err
}

// made returns a new cluster, or the existing one with the subnets of n. A node that joins may move into them.
func (n Network) made(s State, node string) (topology.Cluster, error) {
	if s.Router == nil {
		return topology.New(names.ClusterRouter, n.Subnets, n.joinSubnets(topology.Cluster{}))
	}
	c, err := n.existing(s)
	if err != nil {
		return c, err
	}
	others, _ := c.WithoutNode(node)
	return others.Resize(n.Subnets, n.joinSubnets(c))
}

// existing reads the existing cluster. A router without a record of subnets gets those of n.
func (n Network) existing(s State) (topology.Cluster, error) {
	c, err := s.record, s.invalid
	if err == nil && c.Subnets == nil {
		c.Subnets = n.Subnets
	}
	if err != nil || s.Recorded() {
		return c, err
	}
	return c.Resize(c.Subnets, n.joinSubnets(c))
}

// joinSubnets returns the join subnets for c: the configured ones, then the recorded ones, because gateways hold
// addresses in them. Without configured ones the default comes last.
func (n Network) joinSubnets(c topology.Cluster) []netip.Prefix {
	all := slices.Concat(n.Join, c.Join) // New takes the first of each family
	if n.Join == nil {
		defaults, _ := config.Resolve(config.Sources{})
		all = append(all, defaults.JoinSubnets...)
	}
	return all
}
