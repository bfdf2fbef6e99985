package service

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Near reports whether r has load balancers of its own for groups of nodes: where
// endpoints are nearer to some nodes than to others, and where nodes have their
// own endpoints and clients stay with theirs, which no variable can say.
func (r *Resolved) Near() bool {
	return r.Ours && slices.ContainsFunc(r.Endpoints, func(es Endpoints) bool {
		return slices.ContainsFunc(r.ClusterIPs, func(a netip.Addr) bool { return r.isNear(es.Of(a)) })
	})
}

// isNear is Near for the endpoints of one cluster address.
func (r *Resolved) isNear(es Endpoints) bool {
	if r.InternalLocal {
		return r.Affinity > 0 && len(es.Cluster()) > 0
	}
	return es.Hinted()
}

// nearest returns the endpoints of a cluster address for clients on a node.
func (r *Resolved) nearest(es Endpoints, n Node) Endpoints {
	if r.InternalLocal {
		return es.Local(n.Name)
	}
	return es.ClusterFrom(n)
}

// place names what n has in common with all nodes that have the same endpoints.
func (r *Resolved) place(n Node) string {
	any := func(has func(Endpoint) bool) bool {
		return slices.ContainsFunc(r.Endpoints, func(es Endpoints) bool { return slices.ContainsFunc(es, has) })
	}
	switch {
	case r.InternalLocal, any(func(e Endpoint) bool { return slices.Contains(e.Nodes, n.Name) }):
		return "node/" + n.Name
	case any(func(e Endpoint) bool { return n.Zone != "" && slices.Contains(e.Zones, n.Zone) }):
		return "zone/" + n.Zone
	}
	return "others"
}

// A nearBalancer is what nodes have that have the same endpoints.
type nearBalancer struct {
	place string
	nodes []Node
	vips  vips
}

// nearBalancers lists, in the order of their places, the ways in of one protocol
// that differ by node. Nodes without endpoints of their own have none under the
// internal policy Local.
func (r *Resolved) nearBalancers(protocol corev1.Protocol, at Surroundings) (out []nearBalancer) {
	if !r.Near() {
		return nil
	}
	nodes := map[string][]Node{}
	for _, n := range at.Nodes {
		nodes[r.place(n)] = append(nodes[r.place(n)], n)
	}
	for _, place := range slices.Sorted(maps.Keys(nodes)) {
		b := nearBalancer{place, nodes[place], vips{}}
		for i, p := range r.Ports {
			for _, a := range r.ClusterIPs {
				if es := r.Endpoints[i].Of(a); p.Protocol == protocol && r.isNear(es) && r.Has(Claim{a, p.Protocol, p.Port}) {
					if near := r.nearest(es, b.nodes[0]); len(near) > 0 {
						b.vips[key(a, p.Port)] = backends(near)
					}
				}
			}
		}
		if len(b.vips) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// nearRows returns the load balancers of one protocol that differ by node, each on
// the switches of the nodes that it is for.
func (r *Resolved) nearRows(protocol corev1.Protocol, at Surroundings) []nb.Row {
	var rows []nb.Row
	for _, b := range r.nearBalancers(protocol, at) {
		row := r.balancer(r.balancerName(protocol)+nearInfix+b.place, protocol, "", b.vips)
		for _, n := range b.nodes {
			row.In = append(row.In, nb.Ref{Table: nbdb.LogicalSwitchTable, ID: n.Name, Column: "load_balancer"})
		}
		rows = append(rows, row)
	}
	return rows
}
