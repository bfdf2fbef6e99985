package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// An Init is the input of master-init and minion-init.
type Init struct {
	Command
	// ClusterSubnet and NodeSubnet are subnets of all pods and of the node's pods: one, or an IPv4 and an IPv6 one
	// separated by a comma.
	ClusterSubnet, NodeSubnet string
	// Force changes the subnets even if running pods lose their addresses.
	Force bool
}

// MasterInit makes the cluster router, the join switch, and the same as MinionInit for this node, except for CNI.
// It adopts an existing cluster and gives it new cluster subnets if they differ.
func MasterInit(ctx context.Context, i Init) error { return i.run(ctx, false) }

// MinionInit makes the node's switch in an existing cluster, the management port on this host with its addresses
// and routes, the files to restore it at boot, and the CNI configuration. On a host accepted before, as after a
// reboot, it restores the host's part before it asks the database.
func MinionInit(ctx context.Context, i Init) error { return i.run(ctx, true) }

// A request is a parsed and valid Init.
type request struct {
	node     string         // in lower case
	clusters []netip.Prefix // IPv4 first
	subnets  []netip.Prefix // one in each of clusters
}

// parse checks i by itself, without the host and the database. The error names every problem.
func (i Init) parse() (request, error) {
	r := request{node: names.NodeSwitch(i.NodeName)}
	for _, v := range []string{i.ClusterSubnet, i.NodeSubnet, i.NodeName} {
		if strings.TrimSpace(v) == "" {
			return r, errEmpty
		}
	}
	var err1, err2 error
	r.clusters, err1 = ipnet.ParseSubnets(i.ClusterSubnet, topology.MinHosts)
	r.subnets, err2 = ipnet.ParseSubnets(i.NodeSubnet, topology.MinHosts)
	if err := errors.Join(err1, err2); err != nil {
		return r, errors.Join(topology.CheckNodeName(i.NodeName), err)
	}
	empty := topology.Cluster{Subnets: r.clusters, Nodes: map[string][]netip.Prefix{}}
	_, err := empty.WithNode(i.NodeName, r.subnets)
	return r, err
}

// fits checks the subnets against the configuration and the kernel.
func (r request) fits(c config.Config) error {
	var errs []error
	if a, b, overlap := ipnet.Overlap(r.clusters, c.ServiceCIDRs); overlap {
		errs = append(errs, fmt.Errorf("cluster subnet %s overlaps the subnet of services %s: choose another one", a, b))
	}
	if a, b, overlap := ipnet.Overlap(c.JoinSubnets, c.ServiceCIDRs); overlap {
		errs = append(errs, fmt.Errorf("join subnet %s overlaps the subnet of services %s: set ovn-k8s-join-subnet", a, b))
	}
	for _, h := range c.Hosts() {
		if a, b, overlap := ipnet.Overlap(r.clusters, []netip.Prefix{netip.PrefixFrom(h.Addr, h.Addr.BitLen())}); overlap {
			errs = append(errs, fmt.Errorf("address %s of %s lies in the cluster subnet %s, which is for pods: choose another one", b.Addr(), h.Setting, a))
		}
	}
	if !slices.ContainsFunc(r.subnets, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return errors.Join(errs...)
	}
	if c.MTU < 1280 { // RFC 8200, section 5
		errs = append(errs, fmt.Errorf("mtu %d is too small for IPv6: it needs 1280 or more", c.MTU))
	}
	if !link.HasIPv6() {
		errs = append(errs, fmt.Errorf("subnets %s need IPv6, which this host's kernel does not have: boot it without ipv6.disable=1", ipnet.Join(r.subnets)))
	}
	return errors.Join(errs...)
}

// run checks everything, changes the database and then the host.
func (i Init) run(ctx context.Context, minion bool) error {
	s := newSession(i.Command)
	defer s.close()
	r, problem := i.parse()
	h, err := s.planHost(ctx, r, minion, problem == nil)
	if err := errors.Join(problem, err); err != nil {
		return err
	}
	if h.accepted && !s.DryRun {
		if err := h.ensure(ctx, s); err != nil {
			return err
		}
	}
	if minion && !s.DryRun {
		s.only = r.node
	}
	if err := s.openNB(ctx); err != nil {
		return err
	}
	if err := s.elsewhere(ctx, r, h); err != nil {
		return err
	}
	displaced, err := s.displaced(ctx, r.node)
	if err != nil {
		return err
	}
	var broken []string
	change := s.join(r, minion, func(w world, c topology.Cluster) error {
		broken = displaced(w, c)
		return refuseDisplaced(broken, i.Force)
	})
	if s.DryRun {
		if err := s.previewCluster(ctx, topology.NodeUnit(r.node), change); err != nil {
			return err
		}
		h.preview(s)
		s.warnDisplaced(broken)
		s.Continue()
		return nil
	}
	if _, err := s.changeCluster(ctx, topology.NodeUnit(r.node), change); err != nil {
		return err
	}
	s.warnDisplaced(broken)
	s.Continue()
	if err := h.ensure(ctx, s); err != nil {
		return err
	}
	s.Finish()
	return nil
}

// elsewhere is an error if the node is another host and alive: two hosts would have the same addresses. If this is
// unknown, there is no error.
func (s *session) elsewhere(ctx context.Context, r request, h *host) error {
	before, err := s.recorded(ctx)
	if err != nil {
		return err
	}
	if err := s.otherNode(ctx, r, before); err != nil {
		return err
	}
	other := before.Chassis[r.node]
	if h.known || other == "" || other == s.config.SystemID || s.config.OVNRemote == "" {
		return nil
	}
	s.read = nil // the answer may take long
	return s.Stage(ctx, "asking the Southbound database who is node "+r.node, func(ctx context.Context) error {
		sb, err := ovsdb.OpenSouth(ctx, s.config, nil)
		if err != nil {
			s.Warn("node %s was the host with system-id %s: if that is still there, two have its addresses now (%v)", r.node, other, err)
			return nil
		}
		defer sb.Close()
		if alive, _ := sb.Chassis(); alive[other] {
			return settings.Wrong(fmt.Errorf("node %s is the host with system-id %s, which is registered in the Southbound database: give another --node-name, or if that host is no more run node-remove --node-name=%s first", r.node, other, r.node))
		}
		return nil
	})
}

// recorded reads the record of the topology.
func (s *session) recorded(ctx context.Context) (before topology.Cluster, err error) {
	err = s.withNB(ctx, "reading the Northbound database", func(ctx context.Context) error {
		w, err := s.readWorld(ctx)
		before = w.before()
		if w.few != nil {
			s.read = &w
		}
		return err
	})
	return before, err
}

// otherNode is an error if another node has this host's system-id: with its management port here and a subnet of the
// request, the node got another name; without its management port, the host was cloned.
func (s *session) otherNode(ctx context.Context, r request, before topology.Cluster) error {
	all, err := s.sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	for _, other := range before.NodeNames() {
		here := slices.ContainsFunc(all, func(i vswitch.Interface) bool { return i.ExternalIDs[names.IfaceID] == names.ManagementPort(other) })
		subnet, _, overlap := ipnet.Overlap(r.subnets, before.Nodes[other])
		switch id := before.Chassis[other]; {
		case other == r.node || id == "" || id != s.config.SystemID:
		case here && overlap:
			return settings.Wrong(fmt.Errorf("subnet %s is that of node %s, which is this host: if the node is called %s now, delete its pods and run node-remove --node-name=%[2]s first; "+
				"until then nothing is changed", subnet, other, r.node))
		case !here:
			return settings.Wrong(fmt.Errorf("system-id %s of this host is that of node %s: if this host is a clone, remove /etc/openvswitch/system-id.conf and restart Open vSwitch; "+
				"if it was node %[2]s, run node-remove --node-name=%[2]s first", id, other))
		}
	}
	return nil
}
