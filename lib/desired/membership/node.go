package membership

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A Node is the request of a host to be a node.
type Node struct {
	Network
	Name     string         // in lower case
	Pods     []netip.Prefix // subnets of the node's pods: one in each of Network.Subnets
	SystemID string         // of the host's Open vSwitch, or empty
}

// Fits checks the subnets against the configuration.
func (n Node) Fits(c config.Config) error {
	var errs []error
	if a, b, overlap := ipnet.Overlap(n.Subnets, c.ServiceCIDRs); overlap {
		errs = append(errs, fmt.Errorf("cluster subnet %s overlaps the subnet of services %s: choose another one", a, b))
	}
	for _, h := range c.Hosts() {
		if a, b, overlap := ipnet.Overlap(n.Subnets, []netip.Prefix{ipnet.Single(h.Addr)}); overlap {
			errs = append(errs, fmt.Errorf("address %s of %s lies in the cluster subnet %s, which is for pods: choose another one", b.Addr(), h.Setting, a))
		}
	}
	if !slices.ContainsFunc(n.Pods, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return errors.Join(errs...)
	}
	if c.MTU < 1280 { // RFC 8200, section 5
		errs = append(errs, fmt.Errorf("mtu %d is too small for IPv6: it needs 1280 or more", c.MTU))
	}
	return errors.Join(errs...)
}

// Found returns the change to make the cluster, or to give it the subnets of n, and to add the node. check may be nil.
func (n Node) Found(check func(State, topology.Cluster) error) Change {
	return n.join(func(s State) (topology.Cluster, error) { return n.made(s, n.Name) }, check)
}

// Join returns the change to add the node to the existing cluster. check may be nil.
func (n Node) Join(check func(State, topology.Cluster) error) Change {
	return n.join(n.required, check)
}

// join adds the node to the cluster of find.
func (n Node) join(find Change, check func(State, topology.Cluster) error) Change {
	return func(s State) (topology.Cluster, error) {
		c, err := find(s)
		if err != nil {
			return c, err
		}
		err = errors.Join(n.numbered(s.Topology()), n.taken(s, c))
		c, problem := c.WithNode(n.Name, n.Pods)
		if c = c.WithNodeOnChassis(n.Name, n.SystemID); problem == nil && n.SystemID != "" {
			c = c.WithChassis(n.Name, n.SystemID)
		}
		if err = errors.Join(problem, err); err == nil && check != nil {
			err = check(s, c)
		}
		return c, err
	}
}

// numbered is an error if a program gives nodes their subnets, unless the record c has the subnets of n already: a node
// that joined before restores itself at boot.
func (n Node) numbered(c topology.Cluster) error {
	if c.NumberedBy == "" || slices.Equal(c.Nodes[n.Name], n.Pods) && slices.Equal(c.Subnets, n.Subnets) {
		return nil
	}
	return wayOut(c, n.Name, "gives the nodes of this cluster their subnets")
}

// wayOut is the error of a command that the program in the record c would undo.
func wayOut(c topology.Cluster, node, what string) error {
	return fmt.Errorf("%s %s: run \"%[1]s -init-node=%[3]s\" on this host instead; or if %[1]s is no more, run \"ovn-nbctl remove Logical_Router %[4]s external_ids %[5]s\" first",
		c.NumberedBy, what, node, c.Router, names.NumberedBy)
}

// taken is an error if a switch of the Python era, not in the record c, overlaps a subnet of n.
func (n Node) taken(s State, c topology.Cluster) error {
	var errs []error
	for _, sw := range s.Switches {
		other, err := netip.ParsePrefix(sw.OtherConfig["subnet"])
		if err != nil || sw.Name == n.Name || sw.ExternalIDs[names.GatewayIP] == "" || c.Nodes[sw.Name] != nil {
			continue
		}
		if a, b, overlap := ipnet.Overlap(n.Pods, []netip.Prefix{other.Masked()}); overlap {
			errs = append(errs, fmt.Errorf("subnet %s of node %s overlaps subnet %s of switch %s: choose a free one", a, n.Name, b, sw.Name))
		}
	}
	return errors.Join(errs...)
}

// Conflict is an error if another node has this host's system-id: with its management port here and a subnet of n, the
// node got another name; without its management port, the host was cloned. here are the logical ports of
// interfaces on this host.
func (n Node) Conflict(before topology.Cluster, here map[string]bool) error {
	for _, other := range before.NodeNames() {
		subnet, _, overlap := ipnet.Overlap(n.Pods, before.Nodes[other])
		switch id := before.Chassis[other]; {
		case other == n.Name || id == "" || id != n.SystemID:
		case here[names.ManagementPort(other)] && overlap:
			return fmt.Errorf("subnet %s is that of node %s, which is this host: if the node is called %s now, delete its pods and run node-remove --node-name=%[2]s first; "+
				"until then nothing is changed", subnet, other, n.Name)
		case !here[names.ManagementPort(other)]:
			return fmt.Errorf("system-id %s of this host is that of node %s: if this host is a clone, remove /etc/openvswitch/system-id.conf and restart Open vSwitch; "+
				"if it was node %[2]s, run node-remove --node-name=%[2]s first", id, other)
		}
	}
	return nil
}

// Leave returns the change to remove a node. plugged are the logical ports of pods on its host.
func Leave(node string, plugged []string, force bool) Change {
	return func(s State) (c topology.Cluster, err error) {
		for _, sw := range s.Switches {
			if sw.Name == node && sw.ExternalIDs[names.Owner] == "" && sw.ExternalIDs[names.GatewayIP] != "" {
				return c, fmt.Errorf("switch %s was made by an older release: run minion-init for it first, which takes it over", node)
			}
		}
		if s.Router == nil {
			return c, nil // all rows of the node go
		}
		if !s.Recorded() {
			return c, fmt.Errorf("cluster router %s was made by an older release: run master-init first, which takes it over", s.Router.Name)
		}
		c, err = s.record, s.invalid
		if err == nil {
			err = RefusePods(node, s.pods(node, plugged), force)
		}
		c, _ = c.WithoutNode(node)
		return c, err
	}
}

// RefusePods is an error if the node has pods: unless forced, it stays.
func RefusePods(node string, ports []string, force bool) error {
	if len(ports) == 0 || force {
		return nil
	}
	return fmt.Errorf("node %s has pods: %s: drain it first, or give --force", node, enumerate(ports))
}

// pods lists the pods with a logical port on the node's switch, and the pods of the logical ports plugged in.
func (s State) pods(node string, plugged []string) []string {
	found := map[string]bool{}
	for _, port := range plugged {
		found[port] = true
	}
	for _, sw := range s.Switches {
		if sw.Name != node {
			continue
		}
		for _, p := range s.Ports {
			if p.ExternalIDs[names.Pod] == "true" && slices.Contains(sw.Ports, p.UUID) {
				found[p.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// enumerate names at most ten pods by their logical ports.
func enumerate(ports []string) string {
	pods := make([]string, len(ports))
	for i, p := range ports {
		pods[i] = strings.Replace(p, "_", "/", 1) // names.PodPort; names in Kubernetes have no "_"
	}
	return list(pods)
}
