// Package guard has the rows against spoofing: they drop packets that no pod, and no host in the name of a pod, may send,
// with or without policies.
package guard

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/acl"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Unit owns the rows against packets that no pod may send. Their number is the same in every cluster.
const Unit nb.Unit = "guard"

// TunnelPort is the UDP port of Geneve.
const TunnelPort = 6081

// UDP ports at which clients accept answers of DHCP servers, by family.
const (
	dhcpClient   = 68
	dhcpClientV6 = 546
)

// Priorities of ACLs and router policies: above those of all others.
const (
	priority         = acl.MaxPriority
	sentBackPriority = priority - 1
	claimedPriority  = priority - 2
)

// A Guard is the feature.
type Guard struct{ facts *facts.Index }

// New returns the guard of an index of facts.
func New(x *facts.Index) *Guard { return &Guard{x} }

// Units implements feature.Feature.
func (g *Guard) Units() []feature.Units {
	return []feature.Units{feature.Single(feature.Protection, Unit, g.rows, func() bool { return len(g.facts.Now().Cluster.Nodes) > 0 })}
}

// FactsChanged implements feature.Feature.
func (g *Guard) FactsChanged(c facts.Change) []nb.Unit {
	if c.Topology && (c.OtherNetworks() || len(c.ChangedSubnets()) > 0) {
		return []nb.Unit{Unit}
	}
	return nil
}

func (g *Guard) rows() ([]nb.Row, error) {
	return Rows(g.facts.Now().Cluster.Subnets, g.facts.Now().Switches), nil
}

// Rows returns the rows of Unit.
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
func Rows(subnets []netip.Prefix, switches []string) []nb.Row {
	if len(switches) == 0 {
		return nil
	}
	var in []nb.Ref
	for _, sw := range switches {
		in = append(in, acl.OfSwitch(sw))
	}
	impostors := acl.Or([]string{
		"icmp4.type == 5", "icmp6.type == 137",
		fmt.Sprintf("ip4 && udp.dst == %d", dhcpClient), fmt.Sprintf("ip6 && udp.dst == %d", dhcpClientV6),
	})
	var pods acl.Terms
	for _, s := range subnets {
		pods.Add(s)
	}
	tunnels := fmt.Sprintf("udp.dst == %d", TunnelPort)
	return []nb.Row{
		acl.Row(string(Unit)+"/impostors", acl.Spec{
			Direction: nbdb.ACLDirectionFromLport, Match: impostors, Priority: priority, Action: nbdb.ACLActionDrop,
		}, in),
		routed("tunnels", nbdb.LogicalRouterPolicy{Priority: priority - 1, Match: tunnels, Action: nbdb.LogicalRouterPolicyActionDrop}),
		routed("tunnels/pods", nbdb.LogicalRouterPolicy{Priority: priority, Match: acl.And(tunnels, acl.Or(pods.List("dst"))), Action: nbdb.LogicalRouterPolicyActionAllow}),
	}
}

// routed returns a policy of the cluster router.
func routed(id string, p nbdb.LogicalRouterPolicy) nb.Row {
	return nb.Row{
		Table: nbdb.LogicalRouterPolicyTable, ID: string(Unit) + "/" + id, Model: &p,
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "policies"}},
	}
}

// Refuses returns why no pod may send packets to a port of an address, whatever policies allow; "" if it may.
// outside: the address is in none of the pods' subnets.
func Refuses(proto corev1.Protocol, to netip.AddrPort, outside bool) string {
	udp := strings.EqualFold(string(proto), string(corev1.ProtocolUDP))
	client := uint16(dhcpClient)
	if to.Addr().Is6() {
		client = dhcpClientV6
	}
	switch {
	case udp && to.Port() == client:
		return "no pod may send what answers of a DHCP server look like"
	case udp && to.Port() == TunnelPort && outside:
		return "no pod may send to tunnels"
	}
	return ""
}
