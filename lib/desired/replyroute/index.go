package replyroute

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// An Index counts the endpoints of Services with external policy Local on each node, and refuses Services above
// service.MaxOwnReplies of their namespace, or service.MaxReplies of the node. All Services share the routes of a node: so
// an endpoint touches one unit.
type Index struct {
	facts    *facts.Index
	replies  func(k service.Key, node string) []service.Reply
	locals   int                   // Services with this policy
	on       map[string]candidates // by node
	refusing map[string]bool       // the nodes that refuse a Service: mostly none
}

// candidates are the Candidates of Services on one node.
type candidates struct {
	of      map[service.Key]candidate
	all     int
	refused map[service.Key]bool // see service.Resolved.Refused
}

// A candidate is a Service with endpoints on a node. There are as many as endpoints.
type candidate struct {
	created int64 // as Service.Created
	n       int   // of its Candidates
}

// NewIndex returns an index without Services. replies returns the Replies of a Service on a node.
func NewIndex(x *facts.Index, replies func(service.Key, string) []service.Reply) *Index {
	return &Index{facts: x, replies: replies, on: map[string]candidates{}, refusing: map[string]bool{}}
}

// Units implements feature.Feature.
func (x *Index) Units() []feature.Units {
	return []feature.Units{
		feature.Single(feature.Gateways, InsideUnit, x.insideRows, func() bool { return x.locals > 0 }),
		feature.Named(feature.Replies, Prefix, NodeOf, x.rows, x.units),
	}
}

// FactsChanged returns the units of nodes with other subnets or next hops, and InsideUnit if the subnets inside are others.
func (x *Index) FactsChanged(c facts.Change) (touched []nb.Unit) {
	if !c.Topology {
		return nil
	}
	if !slices.Equal(c.Was.Inside(), c.Now.Inside()) {
		touched = append(touched, InsideUnit)
	}
	for node := range x.on {
		if !slices.Equal(c.Was.Cluster.Nodes[node], c.Now.Cluster.Nodes[node]) || !slices.Equal(nextHops(c.Was, node), nextHops(c.Now, node)) {
			touched = append(touched, Unit(node))
		}
	}
	return touched
}

// AddLocal counts one Service more or less with external policy Local, by n. It returns InsideUnit for the first such
// Service, and after the last one.
func (x *Index) AddLocal(n int) []nb.Unit {
	before := x.locals
	if x.locals += n; (before > 0) == (x.locals > 0) {
		return nil
	}
	return []nb.Unit{InsideUnit}
}

// Put records the number of Candidates of a Service on a node. It returns the units to compute again, and the Services
// newly refused there, or no longer.
func (x *Index) Put(s service.Service, node string, now int) (touched []nb.Unit, changed map[service.Key]bool) {
	here := x.on[node]
	was := here.of[s.Key].n
	if was == 0 && now == 0 {
		return nil, nil
	}
	if here.of == nil {
		here.of = map[service.Key]candidate{}
	}
	here.all += now - was
	if here.of[s.Key] = (candidate{s.Created, now}); now == 0 {
		delete(here.of, s.Key)
	}
	refused := here.decide()
	changed = facts.OtherKeys(here.refused, refused, facts.Same)
	if here.refused = refused; len(refused) > 0 {
		x.refusing[node] = true
	} else {
		delete(x.refusing, node)
	}
	if x.on[node] = here; len(here.of) == 0 {
		delete(x.on, node)
	}
	for other := range changed {
		touched = append(touched, other.Unit())
	}
	if was > 0 || x.facts.Now().Cluster.Nodes[node] != nil {
		touched = append(touched, Unit(node))
	}
	return touched, changed
}

// decide returns the Services refused on a node: the younger ones, if MaxOwnReplies or MaxReplies have no room for all.
func (c candidates) decide() map[service.Key]bool {
	if c.all <= service.MaxOwnReplies {
		return nil
	}
	refused, room, used := map[service.Key]bool{}, service.MaxReplies, map[string]int{}
	of := func(k service.Key) service.Service { return service.Service{Key: k, Created: c.of[k].created} }
	for _, k := range slices.SortedFunc(maps.Keys(c.of), func(a, b service.Key) int { return of(a).Older(of(b)) }) {
		if n := c.of[k].n; n > min(room, service.MaxOwnReplies-used[k.Namespace]) {
			refused[k] = true
		} else {
			room, used[k.Namespace] = room-n, used[k.Namespace]+n
		}
	}
	return refused
}

// RefusedAt is the number of Candidates of a Service on a node, and whether the Service is refused there.
func (x *Index) RefusedAt(k service.Key, node string) (int, bool) {
	here := x.on[node]
	return here.of[k].n, here.refused[k]
}

// Refused are the nodes with a Service refused, with its Candidates there.
func (x *Index) Refused(k service.Key) (out map[string]int) {
	for node := range x.refusing {
		if n, refused := x.RefusedAt(k, node); refused {
			if out == nil {
				out = map[string]int{}
			}
			out[node] = n
		}
	}
	return out
}

// Compact releases the memory of nodes without endpoints.
func (x *Index) Compact() { x.on = maps.Collect(maps.All(x.on)) }

func (x *Index) rows(node string) ([]nb.Row, error) {
	var from []service.Reply
	for k := range x.on[node].of {
		from = append(from, x.replies(k, node)...)
	}
	f := x.facts.Now()
	return rows(node, f.Cluster.Nodes[node], nextHops(f, node), from), nil
}

func (x *Index) insideRows() ([]nb.Row, error) {
	if x.locals == 0 {
		return nil, nil
	}
	return insideRows(x.facts.Now().Inside()), nil
}

func (x *Index) units() (out []nb.Unit) {
	for node := range x.on {
		if x.facts.Now().Cluster.Nodes[node] != nil {
			out = append(out, Unit(node))
		}
	}
	return out
}

// nextHops are the next hops of replies to clients outside from a node: the gateway of the same host, or the host
// itself. Of several gateways it is the one on the host's NIC, as for hostPorts.
func nextHops(f *facts.Facts, node string) []netip.Addr {
	hops, shared := f.Management(node), false
	for _, id := range f.ChassisOf[node] {
		for _, name := range f.Chassis[id].Gateways {
			if g := f.Cluster.Gateways[name]; g.Mode == topology.Bridge || g.Mode == topology.Physical && !shared {
				hops, shared = g.Join, g.Mode == topology.Bridge
			}
		}
	}
	return hops
}
