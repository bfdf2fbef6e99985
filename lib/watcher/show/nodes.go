package show

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/watcher/health"
)

// Nodes prints the nodes of the cluster: subnets, chassis, addresses and how many pods have logical ports.
func Nodes(n World, args []string) (string, error) {
	c := n.Facts().Cluster
	nodes := c.NodeNames()
	if len(args) > 0 {
		if nodes = args; c.Nodes[args[0]] == nil {
			return "", fmt.Errorf("node %q not found: topology/show lists all", args[0])
		}
	}
	pods := map[string]int{}
	for _, u := range n.Units() {
		if p, ok := n.Pod(u); ok {
			pods[strings.ToLower(p.Node)]++
		}
	}
	var b strings.Builder
	t := NewTable(&b)
	fmt.Fprintln(t, "NODE\tSUBNETS\tCHASSIS\tREGISTERED\tADDRESSES\tPODS")
	for _, name := range nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", name, ipnet.Join(c.Nodes[name]), orDash(c.Chassis[name]),
			n.Facts().IsRegistered(c.Chassis[name]), orDash(ipnet.Join(n.Facts().Addresses[name])), pods[name])
	}
	err := t.Flush()
	return b.String(), err
}

// Gateways prints the gateways, and why one is down.
func Gateways(n World, args []string) (string, error) {
	c := n.Facts().Cluster
	gateways := c.Gateways.Names()
	if len(args) > 0 {
		if gateways = args; !slices.Contains(c.Gateways.Names(), args[0]) {
			return "", fmt.Errorf("gateway %q not found: gateway/show without a name lists all", args[0])
		}
	}
	var b strings.Builder
	t := NewTable(&b)
	fmt.Fprintln(t, "GATEWAY\tMODE\tINTERFACE\tADDRESSES\tNEXT HOPS\tJOIN\tANSWERS FOR\tSTATE")
	for _, name := range gateways {
		g := c.Gateways[name]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, g.Mode, vlan(g), ipnet.Join(g.IPs), orDash(ipnet.Join(g.NextHops)), ipnet.Join(g.Join),
			answersFor(n.AnsweredBy(name), len(args) > 0), health.State(n, name))
	}
	err := t.Flush()
	return b.String(), err
}

// maxAnswers bounds the addresses printed for each gateway if there are several.
const maxAnswers = 4

// answersFor lists the addresses outside with ARP and neighbor solicitations answered by a gateway.
func answersFor(addrs []netip.Addr, all bool) string {
	if !all && len(addrs) > maxAnswers {
		return fmt.Sprintf("%s and %d more", ipnet.Join(addrs[:maxAnswers]), len(addrs)-maxAnswers)
	}
	return orDash(ipnet.Join(addrs))
}

func vlan(g topology.Gateway) string {
	if g.VLAN == 0 {
		return g.Interface
	}
	return fmt.Sprintf("%s (VLAN %d)", g.Interface, g.VLAN)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
