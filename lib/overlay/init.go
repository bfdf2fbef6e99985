package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// An Init is what master-init and minion-init are asked for.
type Init struct {
	Command
	// ClusterSubnet and NodeSubnet are subnets of all pods and of the node's
	// pods: one, or an IPv4 and an IPv6 one with a comma.
	ClusterSubnet, NodeSubnet string
}

// MasterInit makes the cluster router and the join switch, and for this node
// what MinionInit makes, except for CNI. A cluster that exists is adopted, and
// given the cluster subnets if they are others now.
func MasterInit(ctx context.Context, i Init) error { return i.run(ctx, false) }

// MinionInit makes the node's switch in an existing cluster, the management
// port on this host with its addresses and routes, what restores it at boot,
// and the CNI configuration.
func MinionInit(ctx context.Context, i Init) error { return i.run(ctx, true) }

// A request is an Init that makes sense.
type request struct {
	node     string         // in lower case
	clusters []netip.Prefix // IPv4 first
	subnets  []netip.Prefix // one in each of clusters
}

// parse checks what can be checked without looking at anything else. Every
// problem is in the error.
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

// fits checks that the subnets go with the configuration and the kernel.
func (r request) fits(c config.Config) error {
	var errs []error
	if a, b, overlap := ipnet.Overlap(r.subnets, c.ServiceCIDRs); overlap {
		errs = append(errs, fmt.Errorf("subnet %s of node %s overlaps the subnet of services %s: choose another one", a, r.node, b))
	}
	if !slices.ContainsFunc(r.subnets, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return errors.Join(errs...)
	}
	if c.MTU < 1280 { // RFC 8200, section 5
		errs = append(errs, fmt.Errorf("mtu %d is too small for IPv6: it needs 1280 or more", c.MTU))
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
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
	if err := s.openNB(ctx); err != nil {
		return err
	}
	change := s.join(r, minion)
	if s.DryRun {
		if err := s.previewCluster(ctx, topology.NodeUnit(r.node), change); err != nil {
			return err
		}
		h.preview(s)
		s.goOn()
		return nil
	}
	if _, err := s.changeCluster(ctx, topology.NodeUnit(r.node), change); err != nil {
		return err
	}
	s.goOn()
	if err := h.ensure(ctx, s); err != nil {
		return err
	}
	fmt.Fprintln(s.Out, done)
	return nil
}
