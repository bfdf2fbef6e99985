package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// A Numbering is the request of a program to give the nodes of the cluster their subnets.
type Numbering struct {
	Program string // names.Ovnkube
	Ranges  nodesubnet.Ranges
	Join    []netip.Prefix // configured for the join switch
	// Adopt takes over a cluster with nodes of minion-init. They keep their subnets.
	Adopt bool
}

// Begin returns the change to make the cluster, or to take over the existing one. It gives the cluster the subnets of
// the ranges, which must include those of all nodes.
func (n Numbering) Begin() Change {
	return func(s State) (topology.Cluster, error) {
		network := Network{n.Ranges.Subnets(), n.Join}
		c, err := network.made(s, "")
		if s.Router == nil {
			c.NumberedBy = n.Program
			return c, err
		}
		before := s.Topology()
		if refusal := errors.Join(n.refuse(before), s.older(before), n.Ranges.CheckNodes(before.Nodes)); refusal != nil {
			return c, refusal // err says less of the same
		}
		c.NumberedBy = n.Program
		return c, err
	}
}

// refuse is an error if the nodes of a cluster were made by hand, or by another program.
func (n Numbering) refuse(before topology.Cluster) error {
	switch {
	case n.Adopt || before.NumberedBy == n.Program:
		return nil
	case before.NumberedBy != "":
		return fmt.Errorf("%s gives the nodes of this cluster their subnets: give --adopt to take it over, with their subnets", before.NumberedBy)
	case len(before.Nodes) > 0:
		return fmt.Errorf("the nodes of this cluster were made by minion-init, with subnets of their own: %s: give --adopt to take them over, with their subnets", list(before.NodeNames()))
	}
	return nil
}

// older is an error if there are node switches of an older release, which are not in the record c: their subnets would
// be given to others.
func (s State) older(c topology.Cluster) error {
	var switches []string
	for _, sw := range s.Switches {
		if sw.ExternalIDs[names.GatewayIP] != "" && sw.ExternalIDs[names.Owner] == "" && c.Nodes[sw.Name] == nil {
			switches = append(switches, sw.Name)
		}
	}
	if slices.Sort(switches); len(switches) == 0 {
		return nil
	}
	return fmt.Errorf("switches of an older release are not in the record of the cluster: %s: run minion-init on these nodes first, which takes them over", list(switches))
}

// list formats at most ten names.
func list(all []string) string {
	const most = 10
	text := strings.Join(all[:min(most, len(all))], ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(", %d more", more)
	}
	return text
}
