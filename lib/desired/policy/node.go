package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Priorities of a node's own ACLs: above those of policies, and the last two below
// the guard's.
const (
	nodePriority     = 1010
	claimedPriority  = guardPriority - 2
	sentBackPriority = guardPriority - 1
)

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
	// Inside are the subnets of pods and routers.
	Inside []netip.Prefix
	// Policies says whether there are any policies.
	Policies bool
}

// Rows returns the ACLs of a node's switch. They drop packets from its management port
// with the source address of a pod, a router or another node's port: a host outside
// forged it. While there are policies, they accept the packets that policies cannot
// forbid (allowed).
func (n Node) Rows() []nb.Row {
	var inside terms
	for _, s := range n.Inside {
		inside.add(s)
	}
	var claimed []string
	for _, s := range inside.sides("src") {
		match := []string{s.match}
		for _, a := range n.Management {
			if a.Is4() == (s.family == "ip4") {
				match = append(match, fmt.Sprintf("%s.src != %s", s.family, a))
			}
		}
		claimed = append(claimed, and(match...))
	}
	rows := []nb.Row{n.acl("claimed", aclSpec{dir: egress, match: and(n.port(), or(claimed)), priority: claimedPriority, action: nbdb.ACLActionDrop})}
	if n.Policies {
		rows = append(rows, n.allowed()...)
	}
	return rows
}

// allowed returns the ACLs for packets that pass in spite of policies: from pods to the
// node, from the node to pods, and from a pod to itself through a Service (OVN sends the
// packet back where it came from, with the Service's address as source). The node's own
// address as source counts at its management port only, since a host outside could forge
// it at a gateway. These ACLs make OVN track all connections, so there are none without
// policies.
func (n Node) allowed() []nb.Row {
	var here, own, all terms
	for _, a := range n.Management {
		here.add(single(a))
		all.add(single(a))
	}
	for _, a := range n.Own {
		own.add(single(a))
		all.add(single(a))
	}
	from := append(here.list("src"), and(n.port(), or(own.list("src"))), "flags.loopback == 1 && ip")
	return []nb.Row{
		n.acl("from-node", aclSpec{dir: ingress, match: or(from), priority: nodePriority, action: nbdb.ACLActionAllowRelated}),
		n.acl("to-node", aclSpec{dir: egress, match: or(all.list("dst")), priority: nodePriority, action: nbdb.ACLActionAllowRelated}),
	}
}

// port matches packets from the node's management port.
func (n Node) port() string { return fmt.Sprintf("inport == %q", names.ManagementPort(n.Switch)) }

func (n Node) acl(kind string, s aclSpec) nb.Row { return acl(n.Switch+"/"+kind, s, n.acls()) }

// acls returns the column with the ACLs of the node's switch.
func (n Node) acls() []nb.Ref {
	return []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: n.Switch, Column: "acls"}}
}

// SentBack returns an ACL with the given ID, for any unit. It accepts packets from the
// management port of a node's switch that match one of ways, although their source is
// the address of a pod. The address is not forged: the node got the packet from the pod
// and sends it on. Policies apply to it as to all packets of the pod.
func SentBack(sw, id string, ways ...string) nb.Row {
	n := Node{Switch: sw}
	return acl(id, aclSpec{dir: egress, match: and(n.port(), or(ways)), priority: sentBackPriority, action: nbdb.ACLActionAllow}, n.acls())
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
