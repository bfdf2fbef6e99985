package loadbalancer

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Gateway takes connections of clients outside to Services.
type Gateway struct {
	Node             string       // of its host, "" if there is none
	Addrs, NodePorts []netip.Addr // of hosts, for its frontends at addresses outside, and for those of NodePorts
}

// Equal reports whether two gateways are the same.
func (g Gateway) Equal(o Gateway) bool {
	return g.Node == o.Node && slices.Equal(g.Addrs, o.Addrs) && slices.Equal(g.NodePorts, o.NodePorts)
}

// ByGateway reports whether r has load balancers of its own for each gateway: with the external policy Local, if an
// endpoint is a host itself. A host would reply to the client directly and bypass the gateway, although the gateway
// has changed the destination. So clients get the gateway's address there.
func ByGateway(r *service.Resolved, pods []netip.Prefix) bool {
	return r.ExternalLocal && slices.ContainsFunc(r.Endpoints, func(es service.Endpoints) bool { return hosted(es, pods) })
}

// hosted reports whether an endpoint is a host, or anything else without an address in the subnets of pods.
func hosted(es service.Endpoints, pods []netip.Prefix) bool {
	return slices.ContainsFunc(es, func(e service.Endpoint) bool {
		return !slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Contains(e.Addr) })
	})
}

// gatewayRows returns the load balancers of one protocol for each gateway, under the external policy Local. If no
// node has an endpoint, all gateways reject connections. If only some have, the others are without the frontend.
func (l *Balancers) gatewayRows(protocol corev1.Protocol) []nb.Row {
	if !l.ExternalLocal {
		return nil
	}
	v, ofHosts := map[string]vips{}, map[string]bool{} // by gateway
	for i, p := range l.Ports {
		if p.Protocol == protocol {
			l.addAtGateways(i, v, ofHosts)
		}
	}
	var rows []nb.Row
	for _, name := range slices.Sorted(maps.Keys(v)) {
		row := l.balancer(l.balancerName(protocol)+localInfix+name, protocol, "", v[name])
		row.In = []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.GatewayRouter(name), Column: "load_balancer"}}
		if !ofHosts[name] {
			row = option(row, "skip_snat", "true")
		}
		rows = append(rows, row)
	}
	return rows
}

// addAtGateways adds the frontends of port number i at each gateway. It marks gateways with the host's own endpoint
// in ofHosts.
func (l *Balancers) addAtGateways(i int, v map[string]vips, ofHosts map[string]bool) {
	var local [2]map[string]service.Endpoints // by node
	var none [2]bool
	for f, any := range ipnet.Families() {
		local[f] = map[string]service.Endpoints{}
		of := l.Endpoints[i].Of(any)
		none[f] = len(of.Cluster()) == 0
		for _, e := range of {
			local[f][e.Node] = append(local[f][e.Node], e)
		}
	}
	for name, g := range l.at.Gateways {
		for _, to := range l.gatewayFrontends(i, g) {
			f := ipnet.Family(to.Addr())
			near := local[f][g.Node].Local(g.Node)
			if l.Refused[g.Node] > 0 {
				near = nil
			}
			if len(near) == 0 && !none[f] {
				continue
			}
			if v[name] == nil {
				v[name] = vips{}
			}
			v[name][to.String()] = l.backends(near)
			ofHosts[name] = ofHosts[name] || hosted(near, l.at.Subnets)
		}
	}
}

// gatewayFrontends lists the frontends of a port at a gateway: those with a load balancer by gateway, and those at
// the gateway's own addresses.
func (l *Balancers) gatewayFrontends(i int, g Gateway) (out []netip.AddrPort) {
	var nodePort [2]uint16
	for _, f := range l.frontends[i] {
		switch {
		case f.Kind == service.NodePort:
			nodePort[f.Family] = f.Number
		case f.IsOutside() && l.byGateway && !l.at.IsHosts(f.Addr):
			out = append(out, netip.AddrPortFrom(f.Addr, f.Number))
		}
	}
	for _, a := range g.Addrs {
		if l.outside[i][a] && l.at.IsHosts(a) {
			out = append(out, netip.AddrPortFrom(a, l.Ports[i].Port))
		}
	}
	for _, a := range g.NodePorts {
		if n := nodePort[ipnet.Family(a)]; l.byGateway && n != 0 {
			out = append(out, netip.AddrPortFrom(a, n))
		}
	}
	return out
}
