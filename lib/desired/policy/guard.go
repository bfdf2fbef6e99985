package policy

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// GuardUnit owns rows that drop packets no pod may send, with or without policies.
// Their number is the same in every cluster.
const GuardUnit nb.Unit = "guard"

// guardPriority is the highest priority of ACLs and of router policies.
const guardPriority = 32767

// TunnelPort is the UDP port of Geneve.
const TunnelPort = 6081

// UDP ports at which clients accept answers of DHCP servers, by family.
const (
	dhcpClient   = 68
	dhcpClientV6 = 546
)

// GuardRows returns the rows of GuardUnit.
//
// Pods must not configure the routes or addresses of others: redirects and answers of
// DHCP servers are dropped. Router advertisements cannot be dropped: OVN accepts all
// packets of neighbour discovery in spite of ACLs. Pods and nodes ignore them.
//
// Pods must not send to the Geneve port of hosts. A gateway, or a node on the route of
// pods' answers, replaces the pod's address by a host's, and another host would accept
// the contents as a tunnel packet of OVN, to any logical port named there. At this
// UDP port, only pods may be destinations. One policy with "!=" would need a flow for
// each combination of the subnets' bits.
func GuardRows(subnets []netip.Prefix, switches []string) []nb.Row {
	if len(switches) == 0 {
		return nil
	}
	var in []nb.Ref
	for _, sw := range switches {
		in = append(in, nb.Ref{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "acls"})
	}
	impostors := or([]string{
		"icmp4.type == 5", "icmp6.type == 137",
		fmt.Sprintf("ip4 && udp.dst == %d", dhcpClient), fmt.Sprintf("ip6 && udp.dst == %d", dhcpClientV6),
	})
	var pods terms
	for _, s := range subnets {
		pods.add(s)
	}
	tunnels := fmt.Sprintf("udp.dst == %d", TunnelPort)
	return []nb.Row{
		acl(string(GuardUnit)+"/impostors", aclSpec{dir: egress, match: impostors, priority: guardPriority, action: nbdb.ACLActionDrop}, in),
		routed("tunnels", nbdb.LogicalRouterPolicy{Priority: guardPriority - 1, Match: tunnels, Action: nbdb.LogicalRouterPolicyActionDrop}),
		routed("tunnels/pods", nbdb.LogicalRouterPolicy{Priority: guardPriority, Match: and(tunnels, or(pods.list("dst"))), Action: nbdb.LogicalRouterPolicyActionAllow}),
	}
}

// routed returns a policy of the cluster router.
func routed(id string, p nbdb.LogicalRouterPolicy) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: string(GuardUnit) + "/" + id, Model: &p,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}

// Guarded returns why no pod may make a connection, whatever policies allow; "" if
// it may. outside: the destination is in none of the pods' subnets.
func (c Connection) Guarded(outside bool) string {
	udp := strings.EqualFold(string(c.Proto), string(corev1.ProtocolUDP))
	client := uint16(dhcpClient)
	if c.To.Addr.Is6() {
		client = dhcpClientV6
	}
	switch {
	case udp && c.Port == client:
		return "no pod may send what answers of a DHCP server look like"
	case udp && c.Port == TunnelPort && outside:
		return "no pod may send to tunnels"
	}
	return ""
}
