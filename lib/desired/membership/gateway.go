package membership

import (
	"fmt"
	"net/netip"
	"strings"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// A Gateway is the request of a host to be a gateway.
type Gateway struct {
	Network
	Name    string
	Gateway topology.Gateway
}

// Add returns the change to add the gateway to the cluster.
func (g Gateway) Add() Change {
	return func(s State) (topology.Cluster, error) {
		c, err := g.required(s)
		if err != nil {
			return c, err
		}
		var taken []netip.Addr
		spec := g.Gateway
		spec.Join, taken = s.joinAddresses(c, g.Name)
		if c, err = c.WithGateway(g.Name, spec, taken...); err == nil {
			err = g.numbered(s.Topology())
		}
		return c, err
	}
}

// numbered is an error if a program takes the gateway of a node of this name from its host, as that would undo this one. A gateway
// that the record c has already restores itself at boot; what its host finds out itself may differ.
func (g Gateway) numbered(c topology.Cluster) error {
	node, old := names.NodeSwitch(g.Name), c.Gateways[g.Name]
	same := g.Gateway
	same.Join, same.First, same.Node, same.MAC, same.Ports, same.Tunnel, same.MTU = old.Join, old.First, old.Node, old.MAC, old.Ports, old.Tunnel, old.MTU
	if c.NumberedBy == "" || c.Nodes[node] == nil || same.Equal(old) {
		return nil
	}
	return wayOut(c, node, "gives the nodes of this cluster their gateways, as their hosts ask for")
}

// joinAddresses returns the join addresses of a gateway of the Python era, and those of all other gateways without
// a record.
func (s State) joinAddresses(c topology.Cluster, name string) (wish, taken []netip.Addr) {
	wish, taken = s.OlderJoin().Of(name)
	if len(wish) != len(c.Join) {
		wish = nil
	}
	return wish, taken
}

// RemoveGateway returns the change to remove a gateway.
func RemoveGateway(name string) Change {
	return func(s State) (topology.Cluster, error) {
		router := names.GatewayRouter(name)
		for _, p := range s.RouterPorts {
			if p.Name == names.RouterToJoin(router) && p.ExternalIDs[names.Owner] == "" {
				return topology.Cluster{}, fmt.Errorf("router %s was made by an older release: run gateway-init for it first, which takes it over", router)
			}
		}
		if s.Router == nil || !s.Recorded() {
			return topology.Cluster{}, nil // all rows of the gateway go
		}
		c, err := s.record, s.invalid
		if err != nil {
			return c, err
		}
		for _, other := range c.Gateways.Names() {
			if other != name && strings.EqualFold(other, name) {
				return c, fmt.Errorf("there is no gateway %s, but %s: spell the name like that", name, other)
			}
		}
		c, _ = c.WithoutGateway(name)
		return c, nil
	}
}
