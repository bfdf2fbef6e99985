package desired

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/replyroute"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// A localIndex has, by node, the Services with variables and with endpoints there.
type localIndex struct {
	facts  *facts.Index
	on     map[string]map[service.Key]*localEndpoints
	routes *replyroute.Index
	shared *interned
}

// localEndpoints are the endpoints of a Service on one node.
type localEndpoints struct {
	service *serviceState
	slices  []string // with endpoints on the node
	// variables and replies follow from the endpoints; current is false if they must be computed again. The row of a
	// node has those of many Services.
	variables []variable
	replies   []service.Reply
	current   bool
}

// A variable is a template variable with its value on one node.
type variable struct{ name, value string }

// putSlice records which of some nodes have endpoints of a slice.
func (x *localIndex) putSlice(of *serviceState, name string, nodes []string) {
	for _, node := range nodes {
		sl, ok := of.slices[name]
		if ok && of.byNode && len(sl.On(node).Endpoints) > 0 {
			x.add(node, of, name)
		} else {
			x.remove(node, of.Key, name)
		}
	}
}

func (x *localIndex) add(node string, of *serviceState, slice string) {
	if x.on[node] == nil {
		x.on[node] = map[service.Key]*localEndpoints{}
	}
	l := x.on[node][of.Key]
	if l == nil {
		l = &localEndpoints{service: of}
		x.on[node][of.Key] = l
	}
	if !slices.Contains(l.slices, slice) {
		l.slices = append(l.slices, slice)
	}
}

func (x *localIndex) remove(node string, k service.Key, slice string) {
	l := x.on[node][k]
	if l == nil {
		return
	}
	l.slices = slices.DeleteFunc(l.slices, func(name string) bool { return name == slice })
	if len(l.slices) > 0 {
		return
	}
	if delete(x.on[node], k); len(x.on[node]) == 0 {
		delete(x.on, node)
	}
}

// candidates are the Candidates of a Service with external policy Local on a node.
func (x *localIndex) candidates(s *serviceState, node string) int {
	l := x.on[node][s.Key]
	if l == nil || !s.outside || s.tooLarge {
		return 0
	}
	return s.limited().Candidates(s.on(node, l.slices), x.facts.Now().Cluster.Nodes[node])
}

// forget makes of compute the endpoints of a Service on a node again.
func (x *localIndex) forget(k service.Key, node string) {
	if l := x.on[node][k]; l != nil {
		l.variables, l.replies, l.current = nil, nil, false
	}
}

// of returns the variables and replies of a Service on a node.
func (x *localIndex) of(k service.Key, node string) *localEndpoints {
	l := x.on[node][k]
	if !l.current {
		x.compute(l, node)
	}
	return l
}

// compute computes the template variables and replies of a Service on a node from the endpoints there.
func (x *localIndex) compute(l *localEndpoints, node string) {
	s := l.service
	l.variables, l.replies, l.current = nil, nil, true
	if s.tooLarge || s.served == 0 {
		return
	}
	r := service.Resolve(s.limited(), s.on(node, l.slices))
	if n, refused := x.routes.RefusedAt(s.Key, node); refused {
		r.Refused = map[string]int{node: n}
	}
	for name, value := range loadbalancer.Variables(&r, node, s.byGateway) {
		l.variables = append(l.variables, variable{x.shared.copyOf(name), value})
	}
	l.variables, l.replies = slices.Clip(l.variables), r.Replies(node)
}

// ServiceOn is Services.Service for the host of a node. Of the endpoints there it has all, as OVN there has.
func (w *World) ServiceOn(u nb.Unit, node string) (service.Resolved, bool) {
	r, is := w.Services.Service(u)
	if is && r.Beyond && r.ByNode() {
		s := w.Services.all[r.Key]
		r.ResolveOn(s.on(node, slices.Collect(maps.Keys(s.slices))))
	}
	return r, is
}

// hasEndpoint reports whether a Service has a usable endpoint of an address family on a node.
func (x *localIndex) hasEndpoint(k service.Key, node string, family netip.Addr) bool {
	l := x.on[node][k]
	if l == nil {
		return false
	}
	for _, name := range l.slices {
		here := l.service.slices[name].On(node).Endpoints
		if slices.ContainsFunc(here, func(h service.Host) bool {
			return h.State != service.Unready && h.Addr.Is4() == family.Is4()
		}) {
			return true
		}
	}
	return false
}

// limited is the Service with service.Resolved.Listed as its ports. These are computed once for all nodes: there may
// be many.
func (s *serviceState) limited() service.Service {
	out := s.Service
	out.Ports = s.listed
	return out
}

// on returns some slices of the Service, with the endpoints on one node.
func (s *serviceState) on(node string, names []string) []service.Slice {
	out := make([]service.Slice, 0, len(names))
	for _, name := range names {
		out = append(out, s.slices[name].On(node))
	}
	return out
}

// manyEndpoints is the number of endpoints in slices, counted for each port, above which a Service is not resolved
// twice for one event.
const manyEndpoints = 1000

// large reports whether a Service is looked at only once for several changes of its slices, in settle.
func (s *serviceState) large() bool { return s.known && s.endpoints() > manyEndpoints }

func (s *serviceState) endpoints() (n int) {
	for _, sl := range s.slices {
		n += len(sl.Endpoints)
	}
	return n * len(s.Ports)
}
