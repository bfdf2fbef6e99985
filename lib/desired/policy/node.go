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
// those of the guard.
const (
	nodePriority     = 1010
	claimedPriority  = guardPriority - 2
	sentBackPriority = guardPriority - 1
)

// NodePrefix starts the units that own a node's own ACLs: what its switch never
// lets through, and what it always does. They are not the node's unit, which
// belongs to the one-shot commands as well.
const NodePrefix = "node-policy/"

// NodeUnit is the unit that owns the ACLs of a node's switch.
func NodeUnit(sw string) nb.Unit { return nb.Unit(NodePrefix + sw) }

// NodeOf is the inverse of NodeUnit. It reports false for units of other kinds.
func NodeOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), NodePrefix) }

// A Node is what the ACLs of a node's switch depend on.
type Node struct {
	Switch string
	// Management are the addresses of its management port, Own those of the node
	// itself.
	Management, Own []netip.Addr
	// Inside are the subnets of pods and routers.
	Inside []netip.Prefix
	// Policies says that there are any.
	Policies bool
}

// Rows returns the ACLs of a node's switch. Nobody comes in at its management port
// with the address of a pod, a router or another node's port: it was claimed to the
// node. And while there are policies it says what they cannot forbid.
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

// allowed are the ACLs for what passes whatever policies say: the pods reach the
// node, and the node reaches them; and a pod reaches itself through a service, in
// which case OVN gives it the service's address and sends the packet back where it
// came from. A node's own address counts at its management port only, since somebody
// outside might claim it to a gateway. They have OVN track all connections, which
// costs those who have no policies.
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

// port matches what comes in at the node's management port.
func (n Node) port() string { return fmt.Sprintf("inport == %q", names.ManagementPort(n.Switch)) }

func (n Node) acl(kind string, s aclSpec) nb.Row { return acl(n.Switch+"/"+kind, s, n.acls()) }

// acls is where the node's switch has its ACLs.
func (n Node) acls() []nb.Ref {
	return []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: n.Switch, Column: "acls"}}
}

// SentBack returns an ACL of the given ID, which may be of any unit, that lets in at
// the management port of a node's switch what one of ways matches, though it has the
// address of a pod: not since somebody claimed it, but since the node got it from
// that pod and sends it on. Policies judge it as what the pod sends.
func SentBack(sw, id string, ways ...string) nb.Row {
	n := Node{Switch: sw}
	return acl(id, aclSpec{dir: egress, match: and(n.port(), or(ways)), priority: sentBackPriority, action: nbdb.ACLActionAllow}, n.acls())
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
