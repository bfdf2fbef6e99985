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

// SentBack returns an ACL with the given ID, for any unit. It accepts packets from the management port of a node's
// switch that match one of ways, although their source is the address of a pod. The address is not forged: the node got
// the packet from the pod and sends it on. Policies apply to it as to all packets of the pod.
func SentBack(sw, id string, ways ...string) nb.Row {
	return fromManagement(sw, id, ways, sentBackPriority, nbdb.ACLActionAllow)
}

// fromManagement returns an ACL for packets from the management port of a switch that match one of several expressions.
func fromManagement(sw, id string, matches []string, priority int, action nbdb.ACLAction) nb.Row {
	return acl.Row(id, acl.Spec{
		Direction: nbdb.ACLDirectionFromLport, Match: acl.And(acl.FromManagement(sw), acl.Or(matches)), Priority: priority, Action: action,
	}, []nb.Ref{acl.OfSwitch(sw)})
}
