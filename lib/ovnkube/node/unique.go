package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// unique returns a reason to wait if another host is this Node, or another Node has this host's system-id: in OVN, both
// would take each other's ports in turn. A new host does nothing before. It is asked once, by a host whose claim is not in the
// annotations of its Node: the list of Nodes is long in a large cluster. A host that has been the Node does not ask: it needs
// no API server for what it has, and annotations of other Nodes, which their hosts write, do not stop it.
func (p *pass) unique(ctx context.Context, in input) error {
	own := p.session.Config.SystemID
	if p.alone || in.node != nil && in.node.Annotations[names.ChassisAnnotation] == own || own == "" {
		return nil
	}
	if before, err := p.recorded(ctx); err != nil || len(before) > 0 {
		return err
	}
	known := p.sw.ExternalIDs()[names.FormerIDs] != ""
	if !in.listed && !known {
		return in.unlisted()
	}
	if !in.listed {
		return nil
	}
	r := rivals{p}
	if err := r.sameNode(in.node); err != nil {
		return err
	}
	err := r.sameSystemID(ctx, own)
	p.alone = err == nil
	return err
}

// rivals are other hosts with the names of this one.
type rivals struct{ *pass }

// sameNode returns a reason to wait if the Node has the claim of another host, and none of this host's addresses. A host
// that takes the place of another one has its kubelet's address in the Node.
func (p rivals) sameNode(node *corev1.Node) error {
	addresses := internalIPs(node)
	if len(addresses) == 0 || node.Annotations[names.ChassisAnnotation] == "" {
		return nil
	}
	here, err := link.Addresses()
	if err != nil {
		return err
	}
	for _, list := range here {
		if slices.ContainsFunc(list, func(a netip.Prefix) bool { return slices.Contains(addresses, a.Addr()) }) {
			return nil
		}
	}
	return p.refuse("TwoHosts", fmt.Sprintf("Node %s is the host with system-id %s and address %v, and this host with system-id %s has another address: give it the name of its own Node with --init-node; if it takes the place of that host, start its kubelet first",
		p.name(), node.Annotations[names.ChassisAnnotation], addresses[0], p.session.Config.SystemID))
}

// sameSystemID returns a reason to wait if another Node has this host's system-id.
func (p rivals) sameSystemID(ctx context.Context, own string) error {
	all, err := p.cluster.ListOn(ctx, kube.KindOf(&corev1.Node{}), "")
	if err != nil {
		return err
	}
	for o := range all.Objects {
		if n, ok := o.(*corev1.Node); ok && n.Name != p.name() && n.Annotations[names.ChassisAnnotation] == own {
			return p.refuse("SameSystemID", fmt.Sprintf("Node %s has system-id %s already, and this host is Node %s: give this host another one: remove /etc/openvswitch/system-id.conf and restart Open vSwitch; if Node %s is gone, delete it",
				n.Name, own, p.name(), n.Name))
		}
	}
	return nil
}

// refuse writes an Event, and returns the reason to wait.
func (p rivals) refuse(reason, text string) error {
	p.tell(reason, text)
	return waiting(text)
}

// claim is an error if another host claims to be this Node after this one did: two that replace each other's claim
// would never end. A host that was replaced by this one does not claim again.
func (p rivals) claim(is, want string) error {
	p.claimed = p.claimed || is == want
	if !p.claimed || is == want || is == "" || p.published.node != nil && p.published.node.Annotations[names.ChassisAnnotation] == is {
		return nil
	}
	text := fmt.Sprintf("the host with system-id %s claims to be Node %s, too: give one of them another --init-node, or stop that one and start this one again", is, p.name())
	p.tell("TwoHosts", text)
	return errors.New(text)
}
