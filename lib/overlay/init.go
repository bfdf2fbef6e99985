package overlay

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/node"
)

// An Init is master-init or minion-init.
//
// A master's makes the cluster router, the join switch, and the same as a minion's for this node, except for CNI. It
// adopts an existing cluster and gives it new cluster subnets if they differ.
//
// A minion's makes the node's switch in an existing cluster, the management port on this host with its addresses and
// routes, the files to restore it at boot, and the CNI configuration. On a host accepted before, as after a reboot, it
// restores the host's part before it asks the database.
type Init struct {
	Minion bool
	// NodeName is the node's name in Kubernetes, in upper or lower case.
	NodeName string
	// ClusterSubnet and NodeSubnet are subnets of all pods and of the node's pods: one, or an IPv4 and an IPv6 one
	// separated by a comma.
	ClusterSubnet, NodeSubnet string
	// Force changes the subnets even if running pods lose their addresses.
	Force bool
}

// parse checks i by itself, without the host and the database. The error names every problem.
func (i Init) parse() (membership.Node, error) {
	n := membership.Node{Name: names.NodeSwitch(i.NodeName)}
	for _, v := range []string{i.ClusterSubnet, i.NodeSubnet, i.NodeName} {
		if strings.TrimSpace(v) == "" {
			return n, errEmpty
		}
	}
	clusters := ipnet.ParseSubnets
	if i.Minion { // ovnkube may have added some to the cluster
		clusters = ipnet.ParseDisjoint
	}
	var err1, err2 error
	n.Subnets, err1 = clusters(i.ClusterSubnet, topology.MinHosts)
	n.Pods, err2 = ipnet.ParseSubnets(i.NodeSubnet, topology.MinHosts)
	if err := errors.Join(err1, err2); err != nil {
		return n, errors.Join(topology.CheckNewName(i.NodeName), err)
	}
	empty := topology.Cluster{Subnets: n.Subnets, Nodes: map[string][]netip.Prefix{}}
	_, err := empty.WithNode(i.NodeName, n.Pods)
	return n, err
}

// run checks everything, changes the database and then the host.
func (i Init) run(ctx context.Context, s *session) error {
	minion := i.Minion
	n, problem := i.parse()
	p, err := s.planNode(ctx, &n, minion, problem == nil)
	if err := errors.Join(problem, err); err != nil {
		return err
	}
	if p.Accepted && !s.dryRun {
		if err := p.Ensure(ctx); err != nil {
			return err
		}
	}
	only := ""
	if minion && !s.dryRun {
		only = n.Name
	}
	if err := s.openStore(ctx, only); err != nil {
		return err
	}
	if err := s.elsewhere(ctx, n); err != nil {
		return err
	}
	plugged, err := node.Plugged(ctx, s.host)
	if err != nil {
		return err
	}
	join := n.Found
	if minion {
		join = n.Join
	}
	var displaced []string
	change := join(func(st membership.State, after topology.Cluster) error {
		displaced = membership.Displaced(st, after, n.Name, plugged)
		return errors.Join(membership.RefuseDisplaced(displaced, i.Force), p.Complete(ctx, after.Join))
	})
	warn := func() {
		if len(displaced) > 0 {
			s.Warn("%s", membership.WarnDisplaced(displaced))
		}
		s.Continue()
	}
	if s.dryRun {
		if err := s.store.Preview(ctx, topology.NodeUnit(n.Name), change); err != nil {
			return err
		}
		p.Preview()
		warn()
		return nil
	}
	if _, err := s.store.Change(ctx, topology.NodeUnit(n.Name), change); err != nil {
		return err
	}
	warn()
	if err := p.Ensure(ctx); err != nil {
		return err
	}
	s.Finish()
	return nil
}

// planNode plans this host, and completes the request with its settings. For a bad request it plans nothing, but
// reports all problems of the host.
func (s *session) planNode(ctx context.Context, n *membership.Node, minion, good bool) (*node.Plan, error) {
	err := s.openWithNB(ctx)
	if s.host == nil {
		return nil, err
	}
	var cni *cnisetup.Setup
	if minion {
		found, missing := cnisetup.Find(s.host.Config)
		cni, err = &found, errors.Join(err, missing)
	}
	if !good || err != nil {
		return nil, err
	}
	if s.host.Config.OVNRemote == "" {
		s.Warn("ovn-remote of Open_vSwitch is not set, so that ovn-controller has no database, and pods here no network: set external_ids:ovn-remote to the address of the Southbound database")
	}
	if err := s.host.CheckTunnels(); err != nil {
		return nil, err
	}
	n.Network.Join, n.SystemID = s.host.Config.GivenJoin(), s.host.Config.SystemID
	p, err := node.New(ctx, s.host, *n, node.Parts{Guards: true, Boot: true, CNI: cni})
	if err != nil {
		return nil, err
	}
	var join []netip.Prefix
	if !p.Accepted {
		join = []netip.Prefix{} // the database knows them
	}
	if err := p.Complete(ctx, join); err != nil {
		return nil, err
	}
	return p, s.host.CheckDatapath(ctx, p.Accepted)
}

// elsewhere is an error if the node is another host and alive: two hosts would have the same addresses. If this is
// unknown, there is no error.
func (s *session) elsewhere(ctx context.Context, n membership.Node) error {
	before, err := s.store.Topology(ctx)
	if err != nil {
		return err
	}
	here, err := node.LogicalPorts(ctx, s.host)
	if err != nil {
		return err
	}
	if err := n.Conflict(before, here); err != nil {
		return err
	}
	is, err := s.registered(ctx, "node "+n.Name, before.Chassis[n.Name])
	if is {
		return errRegistered("node "+n.Name, before.Chassis[n.Name], "")
	}
	return err
}
