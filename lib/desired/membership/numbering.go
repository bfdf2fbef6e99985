package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
)

// A Numbering is the request of a program to give the nodes of the cluster their subnets.
type Numbering struct {
	Program string // names.Ovnkube
	Ranges  nodesubnet.Ranges
	Join    []netip.Prefix // see Network
	// Adopt takes over a cluster with nodes of minion-init, or of an older release. They keep their subnets.
	Adopt bool
}

// Begin returns the change to make the cluster, or to take over the existing one. It gives the cluster the subnets of
// the ranges, which must include those of all nodes.
func (n Numbering) Begin() Change {
	return func(s State) (topology.Cluster, error) {
		network := Network{n.Ranges.Subnets(), n.Join}
		if s.Nothing() {
			c, err := network.made(s, "")
			c.NumberedBy = n.Program
			return c, err
		}
		known, err := network.known(s)
		if err != nil {
			return known, err
		}
		before := s.record
		if s.saved != nil {
			before = *s.saved
		}
		if refusal := errors.Join(n.refuse(before), n.refuseOlder(s), n.Ranges.CheckNodes(known.Nodes)); refusal != nil {
			return known, refusal // Resize says less of the same
		}
		c, err := known.Resize(network.Subnets, network.joinSubnets(known))
		c.NumberedBy = n.Program
		return c, err
	}
}

// Adopts reports whether Begin takes over a cluster whose record commands have made, or another program. One of an older
// release has no record: its nodes may publish claims.
func (n Numbering) Adopts(s State) bool {
	if s.saved != nil {
		return s.saved.NumberedBy != n.Program
	}
	return s.Recorded() && s.record.NumberedBy != n.Program
}

// NothingToAdopt reports whether a cluster is to be taken over, and there is none: Begin would make a new one, in which nodes have
// other subnets than their pods.
func (n Numbering) NothingToAdopt(s State) bool { return n.Adopt && s.Nothing() }

// known returns the existing cluster, or its copy, with the nodes of an older release. It lacks gateways that do not fit in:
// they do not keep a program from starting.
func (n Network) known(s State) (c topology.Cluster, err error) {
	if s.saved != nil {
		c = *s.saved
	} else if c, err = n.existing(s); err != nil && s.Unfit() == nil {
		return c, err
	}
	return withOlder(c, s.OlderNodes())
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

// refuseOlder is an error if there are nodes of an older release.
func (n Numbering) refuseOlder(s State) error {
	if older := s.OlderNodes(); len(older) > 0 && !n.Adopt {
		return fmt.Errorf("the nodes of this cluster were made by an older release: %s: give --adopt to take them over, with their subnets; those that Kubernetes does not have are removed",
			list(sorted(older)))
	}
	return nil
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
