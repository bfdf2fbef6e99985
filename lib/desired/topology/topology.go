// Package topology computes the rows of the cluster's own network: the cluster
// router, the join switch, each node's switch and management port, and each
// gateway.
//
// A Cluster holds the arguments of the one-shot commands. It is written to the
// external_ids of the cluster router (Registry), so that the rows of every node and
// gateway can be computed again from that one row.
package topology

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// MinHosts is the least number of usable addresses of a node's subnet: router,
// management port and one pod.
const MinHosts = 3

// A Cluster is the topology of a cluster. It is a value: its methods return
// changed copies.
type Cluster struct {
	Router  string                    // name of the cluster router
	Subnets []netip.Prefix            // of all pods, any number of a family; IPv4 first
	Join    []netip.Prefix            // of the join switch, one of each family of Subnets; IPv4 first
	Nodes   map[string][]netip.Prefix // by name of the node's switch: the node's subnets, at most one of a family
	Chassis map[string]string         // by name of the node's switch: the system-id of its host, if known
	// NumberedBy is the program that gives nodes their subnets; "": the arguments of the commands do.
	NumberedBy string
	// NextSubnets are where that program goes on: the next subnet of each of its ranges. They refer to no row.
	NextSubnets []netip.Prefix
	// Gateways are by name, in the case given to gateway-init.
	Gateways Gateways
}

// New returns a cluster without nodes. join needs an IPv4 and an IPv6 subnet if
// subnets has both; an unneeded one is left out. The error lists every problem of
// the input.
func New(router string, subnets, join []netip.Prefix) (Cluster, error) {
	c := Cluster{Router: router, Subnets: subnets, Nodes: map[string][]netip.Prefix{}}
	var errs []error
	for f := range ipnet.Families() {
		pods, of := ipnet.OfFamily(subnets, f), ipnet.OfFamily(join, f)
		switch {
		case len(pods) == 0:
		case len(of) == 0:
			errs = append(errs, fmt.Errorf("join subnets %s lack one for %s: set ovn-k8s-join-subnet", ipnet.Join(join), pods[0]))
		default:
			c.Join = append(c.Join, of[0])
		}
	}
	for i, s := range subnets {
		if a, b, overlap := ipnet.Overlap(subnets[:i], []netip.Prefix{s}); overlap {
			errs = append(errs, fmt.Errorf("cluster subnets %s and %s overlap: give each address once", a, b))
		}
	}
	if a, b, overlap := ipnet.Overlap(subnets, c.Join); overlap {
		errs = append(errs, fmt.Errorf("cluster subnet %s overlaps join subnet %s: choose another one, or set ovn-k8s-join-subnet", a, b))
	}
	return c, errors.Join(errs...)
}

// Resize returns c with other cluster and join subnets. If the cluster loses a family,
// nodes lose their subnets of it; all others must lie within the new ones.
func (c Cluster) Resize(subnets, join []netip.Prefix) (Cluster, error) {
	n, err := New(c.Router, subnets, join)
	if err != nil {
		return Cluster{}, err
	}
	n.Nodes, n.Chassis, n.NumberedBy, n.NextSubnets = map[string][]netip.Prefix{}, c.Chassis, c.NumberedBy, c.NextSubnets
	var errs []error
	if n, err = n.moved(c.Gateways); err != nil {
		errs = append(errs, err)
	}
	for _, node := range c.NodeNames() {
		n.Nodes[node] = slices.DeleteFunc(slices.Clone(c.Nodes[node]), func(p netip.Prefix) bool {
			return !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), p.Addr()) })
		})
		if len(n.Nodes[node]) == 0 || !ipnet.Within(n.Nodes[node], subnets) {
			errs = append(errs, fmt.Errorf("subnets %s of node %s are outside the cluster subnets %s", ipnet.Join(c.Nodes[node]), node, ipnet.Join(subnets)))
		}
	}
	return n, errors.Join(errs...)
}

// WithNode returns c with a node of the given subnets, in place of the node's earlier
// ones. The error lists every problem of the input.
func (c Cluster) WithNode(node string, subnets []netip.Prefix) (Cluster, error) {
	return c.withNode(node, subnets, families(c.Subnets), CheckNewName(node))
}

// families is the number of families of subnets.
func families(subnets []netip.Prefix) (n int) {
	for f := range ipnet.Families() {
		n += min(1, len(ipnet.OfFamily(subnets, f)))
	}
	return n
}

// withNode is WithNode for a node with at least least subnets: while a cluster
// becomes dual stack, nodes follow one by one. badName is the problem of its name, or nil.
func (c Cluster) withNode(node string, subnets []netip.Prefix, least int, badName error) (Cluster, error) {
	sw := names.NodeSwitch(node)
	errs := []error{badName}
	if len(subnets) < least || !c.fits(subnets) {
		errs = append(errs, fmt.Errorf("subnets %s of node %s are outside the cluster subnets: give one %s", ipnet.Join(subnets), sw, choice(c.Subnets)))
	}
	for _, other := range c.NodeNames() {
		if a, b, overlap := ipnet.Overlap(subnets, c.Nodes[other]); overlap && other != sw {
			errs = append(errs, fmt.Errorf("subnet %s of node %s overlaps subnet %s of node %s: choose a free one", a, sw, b, other))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Cluster{}, err
	}
	c.Nodes = maps.Clone(c.Nodes)
	c.Nodes[sw] = subnets
	return c, nil
}

// choice tells in which of the cluster's subnets a node's must lie.
func choice(cluster []netip.Prefix) string {
	if families(cluster) == len(cluster) {
		return "in each of " + ipnet.Join(cluster)
	}
	return "of each family in " + ipnet.Join(cluster)
}

// WithoutNode returns c without node, and false if c does not have it.
func (c Cluster) WithoutNode(node string) (Cluster, bool) {
	sw := names.NodeSwitch(node)
	if _, ok := c.Nodes[sw]; !ok {
		return c, false
	}
	c.Nodes = maps.Clone(c.Nodes)
	delete(c.Nodes, sw)
	c.Chassis = maps.Clone(c.Chassis)
	delete(c.Chassis, sw)
	return c.WithNodeOnChassis(sw, ""), true
}

// WithChassis returns c with the system-id of a node's host.
func (c Cluster) WithChassis(node, id string) Cluster {
	chassis := map[string]string{names.NodeSwitch(node): id}
	for other, theirs := range c.Chassis {
		if other != names.NodeSwitch(node) && theirs != id { // a host is one node
			chassis[other] = theirs
		}
	}
	c.Chassis = chassis
	return c
}

// CheckNodeName returns an error unless node, in lower case, is valid for a
// Kubernetes node (a DNS subdomain, RFC 1123) and not the name of another switch of
// ours.
func CheckNodeName(node string) error {
	sw := names.NodeSwitch(node)
	if problems := validation.IsDNS1123Subdomain(sw); len(problems) > 0 {
		return fmt.Errorf("node name %q is not a DNS name: %s", node, problems[0])
	}
	if sw == names.JoinSwitch {
		return fmt.Errorf("node name %q is the name of the join switch: choose another one", node)
	}
	return nil
}

// maxName is the length of the longest name with valid keys in the ConfigMap of the topology.
const maxName = validation.DNS1123SubdomainMaxLength - len(names.LostPrefix+names.GatewayPrefix)

// CheckNewName is CheckNodeName for a new node or gateway. Names recorded by earlier releases may be longer.
func CheckNewName(node string) error {
	if err := CheckNodeName(node); err != nil || len(node) <= maxName {
		return err
	}
	return fmt.Errorf("node name %q has %d characters, and the keys of ConfigMap %s have room for %d: choose a shorter one", node, len(node), names.TopologyConfigMap, maxName)
}

// NodeNames lists the names of the nodes' switches in alphabetical order.
func (c Cluster) NodeNames() []string { return slices.Sorted(maps.Keys(c.Nodes)) }

// routerKey names the router in a Registry.
const routerKey = "ovn-k8s-router"

// Registry returns the topology as kept in external_ids of the cluster router and in
// the data of the ConfigMap. ReadRegistry is its inverse.
func (c Cluster) Registry() map[string]string {
	r := map[string]string{
		routerKey:            c.Router,
		names.ClusterSubnets: ipnet.Join(c.Subnets),
		names.JoinSubnets:    ipnet.Join(c.Join),
	}
	if lengths := c.Lengths(); lengths != "" {
		r[names.SubnetLengths] = lengths
	}
	if c.NumberedBy != "" {
		r[names.NumberedBy] = c.NumberedBy
	}
	if len(c.NextSubnets) > 0 {
		r[names.NextSubnets] = ipnet.Join(c.NextSubnets)
	}
	for node, subnets := range c.Nodes {
		r[names.NodePrefix+node] = ipnet.Join(subnets)
	}
	for node, id := range c.Chassis {
		r[names.ChassisPrefix+node] = id
	}
	for name, g := range c.Gateways {
		r[names.GatewayPrefix+name] = g.text()
	}
	return r
}

// ReadRegistry reads the output of Registry. Other keys are ignored. Nodes and
// gateways in conflict with others are left out of the Cluster and named in the error: an
// Unfit if that is all of it.
func ReadRegistry(r map[string]string) (Cluster, error) { return new(Parser).ReadRegistry(r) }

// ReadRegistry is the function ReadRegistry, with values read before. The caller must not change r any more.
func (p *Parser) ReadRegistry(r map[string]string) (Cluster, error) {
	c, ok := p.readChanged(r)
	var err error
	if !ok {
		p.plain = false
		c, err = p.readAll(r)
	}
	p.keys, p.cluster = r, c
	return c, err
}

func (p *Parser) readAll(r map[string]string) (Cluster, error) {
	subnets, err := ipnet.ParseDisjoint(r[names.ClusterSubnets], 0)
	if err != nil {
		return Cluster{}, fmt.Errorf("reading %s of the topology: %w", names.ClusterSubnets, err)
	}
	join, err := ipnet.ParseSubnets(r[names.JoinSubnets], 0)
	if err != nil {
		return Cluster{}, fmt.Errorf("reading %s of the topology: %w", names.JoinSubnets, err)
	}
	c, err := New(r[routerKey], subnets, join)
	if err != nil {
		return Cluster{}, fmt.Errorf("reading the topology: %w", err)
	}
	c.NumberedBy = r[names.NumberedBy]
	if c.NextSubnets, err = ipnet.ParseDisjoint(r[names.NextSubnets], 0); err != nil {
		c.NextSubnets = nil // it is no more than a preference
	}
	return p.readKeys(c, r)
}
