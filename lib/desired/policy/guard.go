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

// GuardUnit owns what keeps pods from what no pod may do, whether there are
// policies or not. Its rows are as many in every cluster.
const GuardUnit nb.Unit = "guard"

// guardPriority is the highest that there is, of ACLs and of routers' policies.
const guardPriority = 32767

// TunnelPort is where hosts take packets for those of OVN's tunnels: Geneve's, of UDP.
const TunnelPort = 6081

// Where clients take packets for answers of a DHCP server, in either family.
const (
	dhcpClient   = 68
	dhcpClientV6 = 546
)

// GuardRows returns the rows of GuardUnit.
//
// A pod must not tell others which way to send or which addresses they have:
// redirects and answers of DHCP servers are dropped. Router advertisements cannot
// be: OVN lets them pass whatever ACLs say, as it does with all that neighbours
// discover each other by. Pods and nodes do not listen to them.
//
// And it must not send to tunnels. A gateway, or a node to which pods' answers are
// led, gives its packets a host's address, and another host would take what is in
// them for packets of OVN's, to whatever port they name. Only pods may listen at
// that port. In one policy, with "!=", that would be a flow for each combination of
// the subnets' bits.
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

// routed is a policy of the cluster's router.
func routed(id string, p nbdb.LogicalRouterPolicy) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: string(GuardUnit) + "/" + id, Model: &p,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}

// Guarded says why no pod may make a connection, whatever policies say; "" if it
// may. outside says that it is to none of the pods' subnets.
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
