package loadbalancer

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Near reports whether r has load balancers of its own for groups of nodes, because endpoints are nearer to some
// nodes than to others.
func Near(r *service.Resolved) bool {
	return r.Ours && slices.ContainsFunc(r.Endpoints, func(es service.Endpoints) bool {
		return slices.ContainsFunc(r.ClusterIPs, func(a netip.Addr) bool { return isNear(r, es.Of(a)) })
	})
}

// isNear is Near for the endpoints of one cluster address.
func isNear(r *service.Resolved, es service.Endpoints) bool { return !r.InternalLocal && es.Hinted() }

// A nearness has the places with endpoints of their own, and these endpoints.
type nearness struct {
	*service.Resolved
	// differs says of each port, by family, whether nodes differ. index fills hints.
	differs [][2]bool
	hints   [][2]*hintIndex
	hinted  hinted
	places  []place // none if no node differs
}

func newNearness(r *service.Resolved, nodes []service.Node) nearness {
	x := nearness{Resolved: r, differs: make([][2]bool, len(r.Ports)), hints: make([][2]*hintIndex, len(r.Ports))}
	for i, es := range r.Endpoints {
		for f, any := range ipnet.Families() {
			x.differs[i][f] = isNear(r, es.Of(any))
		}
	}
	if Near(r) {
		x.hinted = newHinted(r, nodes)
		x.places = x.hinted.places(nodes)
	}
	return x
}

// A hintIndex has the endpoints of one port and family by the names in their hints: see Endpoints.ClusterFrom. A map
// is nil unless every endpoint has hints of the kind. It has only names of places.
type hintIndex struct {
	all          service.Endpoints
	nodes, zones map[string]service.Endpoints
}

// index returns the hintIndex of port number i and a family, nil where nodes do not differ.
func (x *nearness) index(i, f int) *hintIndex {
	if !x.differs[i][f] || x.hints[i][f] != nil {
		return x.hints[i][f]
	}
	all := x.Endpoints[i].Of(ipnet.Families()[f]).Cluster()
	of := &hintIndex{all: all}
	if len(all) > 0 && all[0].State == service.Serving {
		of.nodes = byHint(all, func(h *service.Host) []string { return h.Nodes }, x.hinted.nodes)
		of.zones = byHint(all, func(h *service.Host) []string { return h.Zones }, x.hinted.zones)
	}
	x.hints[i][f] = of
	return of
}

// at returns the endpoints at a cluster IP for clients at a place. It reports false where all nodes have the same.
func (x *nearness) at(f service.Frontend, p place) (service.Endpoints, bool) {
	of := x.index(f.Index, f.Family)
	if of == nil {
		return nil, false
	}
	return of.of(p.nodes[0]), true
}

// byHint returns the endpoints by those of their hints that are in names. It returns nil unless every endpoint has
// hints of the kind.
func byHint(es service.Endpoints, hints func(*service.Host) []string, names map[string]bool) map[string]service.Endpoints {
	out := map[string]service.Endpoints{}
	for _, e := range es {
		of := hints(e.Host)
		if len(of) == 0 {
			return nil
		}
		for i, name := range of {
			if names[name] && !slices.Contains(of[:i], name) {
				out[name] = append(out[name], e)
			}
		}
	}
	return out
}

// of returns the endpoints for clients on a node.
func (x hintIndex) of(n service.Node) service.Endpoints {
	if near := x.nodes[n.Name]; len(near) > 0 {
		return near
	}
	if near := x.zones[n.Zone]; len(near) > 0 {
		return near
	}
	return x.all
}

// A place is a group of nodes with the same endpoints.
type place struct {
	name  string
	nodes []service.Node
}

// A hinted has all names of nodes and zones, and whether an endpoint has a hint for them. Slices may have any number
// of other names; these are left out.
type hinted struct{ nodes, zones map[string]bool }

func newHinted(r *service.Resolved, all []service.Node) hinted {
	nodes, zones := make(map[string]bool, len(all)), map[string]bool{}
	for _, n := range all {
		nodes[n.Name], zones[n.Zone] = false, false
	}
	delete(zones, "")
	for _, es := range r.Endpoints {
		for _, e := range es {
			mark(nodes, e.Nodes)
			mark(zones, e.Zones)
		}
	}
	return hinted{nodes, zones}
}

// mark sets known to true for names it already has.
func mark(known map[string]bool, names []string) {
	for _, n := range names {
		if is, ok := known[n]; ok && !is {
			known[n] = true
		}
	}
}

// places lists the places of all nodes, in the order of their names.
func (h hinted) places(all []service.Node) []place {
	by := map[string][]service.Node{}
	for _, n := range all {
		name := "others"
		switch {
		case h.nodes[n.Name]:
			name = "node/" + n.Name
		case h.zones[n.Zone]:
			name = "zone/" + n.Zone
		}
		by[name] = append(by[name], n)
	}
	var out []place
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, place{name, by[name]})
	}
	return out
}

// nearRows returns the load balancers of one protocol for groups of nodes, each on the switches of its nodes.
func (l *Balancers) nearRows(protocol corev1.Protocol) []nb.Row {
	var rows []nb.Row
	for _, at := range l.near.places {
		v := vips{}
		for f := range l.of(protocol) {
			if f.Kind != service.ClusterIP {
				continue
			}
			if es, ok := l.near.at(f, at); ok && len(es) > 0 {
				v[key(f.Addr, f.Number)] = l.backends(es)
			}
		}
		if len(v) == 0 {
			continue
		}
		row := l.balancer(l.balancerName(protocol)+nearInfix+at.name, protocol, "", v)
		for _, n := range at.nodes {
			row.In = append(row.In, nb.Ref{Table: nbdb.LogicalSwitchTable, ID: n.Name, Column: "load_balancer"})
		}
		rows = append(rows, row)
	}
	return rows
}
