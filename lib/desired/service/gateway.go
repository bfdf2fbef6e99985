package service

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Gateway is one through which clients outside reach Services.
type Gateway struct {
	Node  string       // on whose host it is, "" if there is none
	Addrs []netip.Addr // at which it takes in NodePorts
}

// Equal reports whether two gateways are the same.
func (g Gateway) Equal(o Gateway) bool { return g.Node == o.Node && slices.Equal(g.Addrs, o.Addrs) }

// byGateway reports whether r has load balancers of its own for each gateway: with
// the external policy Local, where clients stay with their endpoint, which no
// variable can say; and where an endpoint is a host itself. That would answer a
// client that keeps its address past the gateway, which has changed the
// destination: there clients get the gateway's address.
func (r *Resolved) byGateway(pods []netip.Prefix) bool {
	return r.ExternalLocal && (r.Affinity > 0 || slices.ContainsFunc(r.Endpoints, func(es Endpoints) bool { return es.hosted(pods) }))
}

// hosted reports whether an endpoint is a host itself, or else no pod with an
// address of its own.
func (es Endpoints) hosted(pods []netip.Prefix) bool {
	return slices.ContainsFunc(es, func(e Endpoint) bool { return !inside(e.Addr, pods) })
}

// gatewayRows returns the load balancers of one protocol for each gateway, under
// the external policy Local. Where no node has an endpoint, all refuse; where only
// some have, the others do not have the way in.
func (r *Resolved) gatewayRows(protocol corev1.Protocol, at Surroundings) []nb.Row {
	if !r.ExternalLocal {
		return nil
	}
	var rows []nb.Row
	for _, name := range slices.Sorted(maps.Keys(at.Gateways)) {
		g, v, hosted := at.Gateways[name], vips{}, false
		for i, p := range r.Ports {
			if p.Protocol != protocol {
				continue
			}
			for _, to := range r.gatewayWays(p, g, at) {
				es := r.Endpoints[i].Of(to.Addr())
				if near := es.Local(g.Node); len(near) > 0 || len(es.Cluster()) == 0 {
					v[to.String()] = backends(near)
					hosted = hosted || near.hosted(at.Subnets)
				}
			}
		}
		if len(v) == 0 {
			continue
		}
		row := r.balancer(r.balancerName(protocol)+localInfix+name, protocol, "", v)
		row.In = []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.GatewayRouter(name), Column: "load_balancer"}}
		if !hosted {
			row = option(row, "skip_snat", "true")
		}
		rows = append(rows, row)
	}
	return rows
}

// gatewayWays lists the ways into a port at a gateway: those for which r has a load
// balancer of its own there, and those at the gateway's own addresses.
func (r *Resolved) gatewayWays(p Port, g Gateway, at Surroundings) (out []netip.AddrPort) {
	byGateway := r.byGateway(at.Subnets)
	for _, a := range r.outer(p, at) {
		if own := at.isHosts(a); own && slices.Contains(g.Addrs, a) || !own && byGateway {
			out = append(out, netip.AddrPortFrom(a, p.Port))
		}
	}
	if !byGateway || p.NodePort == 0 || !r.Has(Claim{Protocol: p.Protocol, Port: p.NodePort}) {
		return out
	}
	for _, a := range g.Addrs {
		if r.hasFamily(family(a)) {
			out = append(out, netip.AddrPortFrom(a, p.NodePort))
		}
	}
	return out
}
