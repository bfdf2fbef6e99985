package watcher

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/kube"
)

// showNodes prints the nodes of the cluster: subnets, chassis, addresses and how many pods have logical ports.
func (w *Watcher) showNodes(args []string) (string, error) {
	return w.ask(func(e *engine) (string, error) {
		c := e.world.Facts().Cluster
		nodes := c.NodeNames()
		if len(args) > 0 {
			if nodes = args; c.Nodes[args[0]] == nil {
				return "", fmt.Errorf("node %q not found: topology/show lists all", args[0])
			}
		}
		pods := map[string]int{}
		for _, u := range e.world.Units() {
			if p, ok := e.world.Pods.Pod(u); ok {
				pods[strings.ToLower(p.Node)]++
			}
		}
		var b strings.Builder
		t := newTable(&b)
		fmt.Fprintln(t, "NODE\tSUBNETS\tCHASSIS\tREGISTERED\tADDRESSES\tPODS")
		for _, n := range nodes {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", n, ipnet.Join(c.Nodes[n]), orDash(c.Chassis[n]),
				e.world.Facts().IsRegistered(c.Chassis[n]), orDash(ipnet.Join(e.world.Facts().Addresses[n])), pods[n])
		}
		err := t.Flush()
		return b.String(), err
	})
}

// showGateways prints the gateways, and why one is down.
func (w *Watcher) showGateways(args []string) (string, error) {
	return w.ask(func(e *engine) (string, error) {
		c := e.world.Facts().Cluster
		gateways := c.GatewayNames()
		if len(args) > 0 {
			if gateways = args; !slices.Contains(c.GatewayNames(), args[0]) {
				return "", fmt.Errorf("gateway %q not found: gateway/show without a name lists all", args[0])
			}
		}
		var b strings.Builder
		t := newTable(&b)
		fmt.Fprintln(t, "GATEWAY\tMODE\tINTERFACE\tADDRESSES\tNEXT HOPS\tJOIN\tANSWERS FOR\tSTATE")
		for _, name := range gateways {
			g := c.Gateways[name]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, g.Mode, vlan(g), ipnet.Join(g.IPs), orDash(ipnet.Join(g.NextHops)), ipnet.Join(g.Join),
				answersFor(e.world.Answers.AnsweredBy(name), len(args) > 0), e.gatewayState(name, g))
		}
		err := t.Flush()
		return b.String(), err
	})
}

// gatewayState says whether routes lead to a gateway, and the reasons if not.
func (e *engine) gatewayState(name string, g topology.Gateway) string {
	var problems []string
	if e.world.Facts().IsRegistered(g.Chassis) == "no" {
		problems = append(problems, "chassis "+g.Chassis+" is not in the Southbound database: check ovn-controller there")
	}
	if e.world.Facts().Silent[name] {
		problems = append(problems, "no answer at "+e.addressesOf(name))
	}
	if e.world.Facts().DeclaredDown(name) {
		problems = append(problems, whyDeclared)
	}
	down := slices.Contains(e.world.Facts().DeadGateways(), name)
	switch {
	case len(problems) == 0 && !down:
		return "in use"
	case down:
		return "down, routes withdrawn: " + strings.Join(problems, "; ")
	}
	return "in use, since all are unhealthy: " + strings.Join(problems, "; ")
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

// warnAbsent writes a WARN and an Event on the Node for each chassis removed from the Southbound database.
func (e *engine) warnAbsent(before, now map[string]string) {
	for _, node := range slices.Sorted(maps.Keys(now)) {
		if _, said := before[node]; !said {
			text := fmt.Sprintf("node %s: chassis %s is not in the Southbound database, so that pods there get no changes: check ovn-controller on %s", node, now[node], node)
			e.log.Warn(text)
			e.links.cluster.Warn(kube.Node(node), "ChassisNotRegistered", text)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(before)) {
		if _, still := now[node]; !still {
			e.log.Infof("node %s: chassis %s is in the Southbound database again", node, before[node])
		}
	}
}
