package policy

import (
	"net/netip"
	"strings"

	"ovn-k8s/lib/desired/acl"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// nodePriority is the priority of a node's own ACLs, above those of policies.
const nodePriority = 1010

// NodePrefix starts the units of a node's own ACLs, for packets that its switch always
// drops or always accepts. They are separate from the node's unit, because the one-shot
// commands write the node's unit as well.
const NodePrefix = "node-policy/"

// NodeUnit returns the owner of the ACLs of a node's switch.
func NodeUnit(sw string) nb.Unit { return nb.Unit(NodePrefix + sw) }

// NodeOf is the inverse of NodeUnit. It reports false for units of other kinds.
func NodeOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), NodePrefix) }

// A Node holds the inputs of the ACLs of a node's switch.
type Node struct {
	Switch string
	// Management are the addresses of its management port, Own those of the node
	// itself.
	Management, Own []netip.Addr
}

// Rows returns the ACLs for packets that pass in spite of policies: from pods to the
// node, from the node to pods, and from a pod to itself through a Service (OVN sends the
// packet back where it came from, with the Service's address as source). The node's own
// address as source counts at its management port only, since a host outside could forge
// it at a gateway. These ACLs make OVN track all connections, so there are none without
// policies.
func (n Node) Rows() []nb.Row {
	var here, own, all acl.Terms
	for _, a := range n.Management {
		here.Add(ipnet.Single(a))
		all.Add(ipnet.Single(a))
	}
	for _, a := range n.Own {
		own.Add(ipnet.Single(a))
		all.Add(ipnet.Single(a))
	}
	from := append(here.List("src"), acl.And(acl.FromManagement(n.Switch), acl.Or(own.List("src"))), "flags.loopback == 1 && ip")
	return []nb.Row{
		n.acl("from-node", ingress, acl.Or(from)),
		n.acl("to-node", egress, acl.Or(all.List("dst"))),
	}
}

func (n Node) acl(kind string, dir direction, match string) nb.Row {
	return acl.Row(n.Switch+"/"+kind, acl.Spec{
		Direction: dir.column(), Match: match, Priority: nodePriority, Action: nbdb.ACLActionAllowRelated,
	}, []nb.Ref{acl.OfSwitch(n.Switch)})
}
