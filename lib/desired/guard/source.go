package guard

import (
	"fmt"
	"net/netip"

	"ovn-k8s/lib/desired/acl"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Claimed returns the ACL that drops packets from the management port of a node's switch with the source address of a
// pod, a router or another node's port: a host outside forged it. management are the addresses of the management port,
// inside the subnets of pods and routers. The row is for any unit.
func Claimed(sw string, management []netip.Addr, inside []netip.Prefix) nb.Row {
	var sources acl.Terms
	for _, s := range inside {
		sources.Add(s)
	}
	var claimed []string
	for _, s := range sources.Sides("src") {
		match := []string{s.Match}
		for _, a := range management {
			if a.Is4() == (s.Family == "ip4") {
				match = append(match, fmt.Sprintf("%s.src != %s", s.Family, a))
			}
		}
		claimed = append(claimed, acl.And(match...))
	}
	return fromManagement(sw, sw+"/claimed", claimed, claimedPriority, nbdb.ACLActionDrop)
}

// SentOn returns ACLs for packets of pods that a node gets by its management port and sends back by it, to another pod of
// the node; ways match them. They accept these packets from the node, although their source is the address of a pod: the
// address is not forged. Policies apply to them as to all packets of pods. The management port must not track them, in
// either direction: the answers go from pod to pod, and with the first packets only, the kernel's conntrack takes the third
// one of TCP and SCTP for invalid. The rows are for any unit, with IDs that begin with id.
func SentOn(sw, id string, ways ...string) []nb.Row {
	return []nb.Row{
		fromManagement(sw, id+"/sent-back", ways, sentBackPriority, nbdb.ACLActionAllowStateless),
		acl.Row(id+"/to-node", acl.Spec{
			Direction: nbdb.ACLDirectionToLport, Match: acl.And(acl.ToManagement(sw), acl.Or(ways)), Priority: sentBackPriority, Action: nbdb.ACLActionAllowStateless,
		}, []nb.Ref{acl.OfSwitch(sw)}),
	}
}

// fromManagement returns an ACL for packets from the management port of a switch that match one of several expressions.
func fromManagement(sw, id string, matches []string, priority int, action nbdb.ACLAction) nb.Row {
	return acl.Row(id, acl.Spec{
		Direction: nbdb.ACLDirectionFromLport, Match: acl.And(acl.FromManagement(sw), acl.Or(matches)), Priority: priority, Action: action,
	}, []nb.Ref{acl.OfSwitch(sw)})
}
