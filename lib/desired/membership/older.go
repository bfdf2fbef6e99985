package membership

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// WithCopy returns s with the copy of the topology, for a database without a cluster router: it was emptied.
func (s State) WithCopy(c topology.Cluster) State {
	if s.Router == nil {
		s.saved = &c
	}
	return s
}

// Nothing reports whether there is no cluster, and no copy of one.
func (s State) Nothing() bool { return s.Router == nil && s.saved == nil }

// OlderNodes are the subnets of nodes made by the Python or the early Go era, which are not in the record: each has a
// switch with the router's address, and no owner.
func (s State) OlderNodes() map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, sw := range s.Switches {
		if sw.ExternalIDs[names.GatewayIP] == "" || sw.ExternalIDs[names.Owner] != "" || s.record.Nodes[sw.Name] != nil || sw.Name == names.JoinSwitch {
			continue
		}
		for _, text := range []string{sw.OtherConfig["subnet"], sw.ExternalIDs[names.GatewayIP]} {
			if p, err := netip.ParsePrefix(text); err == nil && out[sw.Name] == nil {
				out[sw.Name] = []netip.Prefix{p.Masked()}
			}
		}
	}
	return out
}

// An OlderJoin has the join addresses of gateways made by the Python or the early Go era, by gateway.
type OlderJoin map[string][]netip.Addr

// OlderJoin returns those of all such gateways that are not in the record.
func (s State) OlderJoin() OlderJoin {
	out := OlderJoin{}
	for _, p := range s.RouterPorts {
		name, ok := names.GatewayOfJoin(p.Name)
		if !ok && p.ExternalIDs[names.ConnectToJoin] == "yes" {
			name, ok = p.Name, true // of a router with another name
		}
		if !ok || p.ExternalIDs[names.Owner] != "" {
			continue
		}
		for _, network := range p.Networks {
			if prefix, err := netip.ParsePrefix(network); err == nil {
				out[name] = append(out[name], prefix.Addr())
			}
		}
	}
	return out
}

// Of returns the addresses of a gateway, and those of all others.
func (o OlderJoin) Of(name string) (wish, taken []netip.Addr) {
	for other, addrs := range o {
		if other != name {
			taken = append(taken, addrs...)
		}
	}
	return o[name], taken
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// withOlder returns c with nodes of an older release. It is an error if two nodes share an address.
func withOlder(c topology.Cluster, older map[string][]netip.Prefix) (topology.Cluster, error) {
	if len(older) == 0 {
		return c, nil
	}
	nodes := maps.Clone(c.Nodes)
	for _, name := range sorted(older) {
		for _, other := range sorted(nodes) {
			if a, b, overlap := ipnet.Overlap(older[name], nodes[other]); overlap {
				return c, fmt.Errorf("subnet %s of switch %s, made by an older release, overlaps subnet %s of node %s: remove one of them", a, name, b, other)
			}
		}
		nodes[name] = older[name]
	}
	c.Nodes = nodes
	return c, nil
}
