package service

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Near reports whether r has load balancers of its own for groups of nodes, because endpoints are nearer to some
// nodes than to others.
func (r *Resolved) Near() bool {
	return r.Ours && slices.ContainsFunc(r.Endpoints, func(es Endpoints) bool {
		return slices.ContainsFunc(r.ClusterIPs, func(a netip.Addr) bool { return r.isNear(es.Of(a)) })
	})
}

// isNear is Near for the endpoints of one cluster address.
func (r *Resolved) isNear(es Endpoints) bool { return !r.InternalLocal && es.Hinted() }

// A hintIndex has the endpoints of one port and family by the names in their hints: see Endpoints.ClusterFrom. A map
// is nil unless every endpoint has hints of the kind. It has only names of places.
type hintIndex struct {
	all          Endpoints
	nodes, zones map[string]Endpoints
}

// index returns the hintIndex of port number i and a family, nil where nodes do not differ.
func (l *layout) index(i, f int) *hintIndex {
	if !l.differs[i][f] || l.hints[i][f] != nil {
		return l.hints[i][f]
	}
	all := l.Endpoints[i].Of(ipnet.Families()[f]).Cluster()
	x := &hintIndex{all: all}
	if len(all) > 0 && all[0].State == Serving {
		x.nodes = all.byHint(func(h *Host) []string { return h.Nodes }, l.hinted.nodes)
		x.zones = all.byHint(func(h *Host) []string { return h.Zones }, l.hinted.zones)
	}
	l.hints[i][f] = x
	return x
}

// byHint returns the endpoints by those of their hints that are in names. It returns nil unless every endpoint has
// hints of the kind.
func (es Endpoints) byHint(hints func(*Host) []string, names map[string]bool) map[string]Endpoints {
	out := map[string]Endpoints{}
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
func (x hintIndex) of(n Node) Endpoints {
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
	nodes []Node
}

// A hinted has all names of nodes and zones, and whether an endpoint has a hint for them. Slices may have any number
// of other names; these are left out.
type hinted struct{ nodes, zones map[string]bool }

func (r *Resolved) hinted(all []Node) hinted {
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
func (h hinted) places(all []Node) []place {
	by := map[string][]Node{}
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

// near returns the endpoints at a cluster IP for clients at a place. It reports false where all nodes have the same.
func (l *layout) near(f Frontend, at place) (Endpoints, bool) {
	x := l.index(f.Index, f.Family)
	if x == nil {
		return nil, false
	}
	return x.of(at.nodes[0]), true
}

// nearRows returns the load balancers of one protocol for groups of nodes, each on the switches of its nodes.
func (l *layout) nearRows(protocol corev1.Protocol) []nb.Row {
	var rows []nb.Row
	for _, at := range l.places {
		v := vips{}
		for f := range l.of(protocol) {
			if f.Kind != ClusterIP {
				continue
			}
			if es, ok := l.near(f, at); ok && len(es) > 0 {
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
