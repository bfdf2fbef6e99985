package topology

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// Equal reports whether both describe the same topology.
func (c Cluster) Equal(d Cluster) bool {
	return c.Router == d.Router && c.NumberedBy == d.NumberedBy && slices.Equal(c.NextSubnets, d.NextSubnets) && slices.Equal(c.Subnets, d.Subnets) && slices.Equal(c.Join, d.Join) &&
		equalMaps(c.Nodes, d.Nodes, slices.Equal) &&
		equalMaps(c.Chassis, d.Chassis, func(a, b string) bool { return a == b }) &&
		equalMaps(c.Gateways, d.Gateways, Gateway.Equal)
}

// SamePlaces reports whether both differ at most in fields of gateways that no other rows depend on than those of
// gateways: see Gateway.samePlace.
func (c Cluster) SamePlaces(d Cluster) bool {
	return c.Router == d.Router && c.NumberedBy == d.NumberedBy && slices.Equal(c.NextSubnets, d.NextSubnets) && slices.Equal(c.Subnets, d.Subnets) && slices.Equal(c.Join, d.Join) &&
		equalMaps(c.Nodes, d.Nodes, slices.Equal) &&
		equalMaps(c.Chassis, d.Chassis, func(a, b string) bool { return a == b }) &&
		equalMaps(c.Gateways, d.Gateways, Gateway.samePlace)
}

// EqualBut reports whether both describe the same topology, but for the subnets and the chassis of a node.
func (c Cluster) EqualBut(node string, d Cluster) bool {
	sw := names.NodeSwitch(node)
	without := func(c Cluster) Cluster {
		c.Nodes, c.Chassis = maps.Clone(c.Nodes), maps.Clone(c.Chassis)
		delete(c.Nodes, sw)
		delete(c.Chassis, sw)
		return c
	}
	return without(c).Equal(without(d)) && len(ChangedGateways(c, d)) == 0
}

// Lengths lists the prefix lengths of the nodes' subnets, as "ipv4/24 ipv6/64".
func (c Cluster) Lengths() string {
	type length struct{ addr, prefix int }
	all := map[length]bool{}
	for _, subnets := range c.Nodes {
		for _, s := range subnets {
			all[length{s.Addr().BitLen(), s.Bits()}] = true
		}
	}
	var texts []string
	for l := range all {
		family := map[int]string{32: "ipv4", 128: "ipv6"}[l.addr]
		texts = append(texts, fmt.Sprintf("%s/%d", family, l.prefix))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// OneLength reports whether Lengths has at most one of each family: then nodes' subnets overlap only if they are equal.
func (c Cluster) OneLength() bool {
	lengths := c.Lengths()
	return strings.Count(lengths, "ipv4") <= 1 && strings.Count(lengths, "ipv6") <= 1
}

// equalMaps is maps.EqualFunc in constant time for the same map twice.
func equalMaps[V any](a, b map[string]V, equal func(V, V) bool) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() || maps.EqualFunc(a, b, equal)
}

// Equal reports whether both have the same values.
func (g Gateway) Equal(h Gateway) bool {
	return g.Mode == h.Mode && g.Interface == h.Interface && g.Chassis == h.Chassis && g.MAC == h.MAC && g.VLAN == h.VLAN &&
		g.Ports == h.Ports && g.Closed == h.Closed && g.First == h.First && g.Node == h.Node && g.Tunnel == h.Tunnel && g.MTU == h.MTU &&
		slices.Equal(g.IPs, h.IPs) && slices.Equal(g.NextHops, h.NextHops) && slices.Equal(g.Rampout, h.Rampout) && slices.Equal(g.Join, h.Join)
}

// samePlace reports whether both are on the same host, with the same addresses and next hops, and both are closed to
// clients outside or none is.
func (g Gateway) samePlace(h Gateway) bool {
	return g.Mode == h.Mode && g.Chassis == h.Chassis && g.Node == h.Node && g.Closed == h.Closed &&
		slices.Equal(g.IPs, h.IPs) && slices.Equal(g.NextHops, h.NextHops) && slices.Equal(g.Join, h.Join)
}

// ChangedGateways lists the gateways whose rows may differ between two topologies, sorted.
func ChangedGateways(old, now Cluster) []string {
	all := gatewayInputs(old) != gatewayInputs(now)
	changed := []string{}
	for name, g := range now.Gateways {
		if was, ok := old.Gateways[name]; all || !ok || !g.Equal(was) || len(g.Rampout) > 0 && !slices.Equal(g.own(now), was.own(old)) {
			changed = append(changed, name)
		}
	}
	for name := range old.Gateways {
		if _, ok := now.Gateways[name]; !ok {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

// gatewayInputs returns the inputs of all gateways' rows as text: see leads, pins and byPolicy for the last three.
func gatewayInputs(c Cluster) string {
	var hops, pins [2]bool
	shortest := [2]int{-1, -1}
	for f, family := range ipnet.Families() {
		hops[f], pins[f] = c.Gateways.hops(family), c.Gateways.pins(family)
	}
	for _, subnets := range c.Nodes {
		for _, s := range subnets {
			if f := ipnet.Family(s.Addr()); shortest[f] < 0 || s.Bits() < shortest[f] {
				shortest[f] = s.Bits()
			}
		}
	}
	return fmt.Sprint(c.Router, c.Subnets, c.Join, hops, pins, shortest)
}
