package desired

import (
	"slices"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// localEndpoints are the endpoints of a Service on one node.
type localEndpoints struct {
	slices []string // with endpoints on the node
	// variables and replies follow from the endpoints; current is false if they must be computed again. The row of a
	// node has those of many Services.
	variables []variable
	replies   []service.Reply
	current   bool
}

// A variable is a template variable with its value on one node.
type variable struct{ name, value string }

// indexSlice records which of some nodes have endpoints of a slice.
func (x *Services) indexSlice(of *serviceState, name string, nodes []string) {
	for _, node := range nodes {
		sl, ok := of.slices[name]
		if ok && of.byNode && len(sl.On(node).Endpoints) > 0 {
			x.addOnNode(node, of.Key, name)
		} else {
			x.removeOnNode(node, of.Key, name)
		}
	}
}

func (x *Services) addOnNode(node string, k service.Key, slice string) {
	if x.onNode[node] == nil {
		x.onNode[node] = map[service.Key]*localEndpoints{}
	}
	l := x.onNode[node][k]
	if l == nil {
		l = &localEndpoints{}
		x.onNode[node][k] = l
	}
	if !slices.Contains(l.slices, slice) {
		l.slices = append(l.slices, slice)
	}
}

func (x *Services) removeOnNode(node string, k service.Key, slice string) {
	l := x.onNode[node][k]
	if l == nil {
		return
	}
	l.slices = slices.DeleteFunc(l.slices, func(name string) bool { return name == slice })
	if len(l.slices) > 0 {
		return
	}
	if delete(x.onNode[node], k); len(x.onNode[node]) == 0 {
		delete(x.onNode, node)
	}
}

// changedLocal returns the units to compute again after a change of a Service's endpoints on some nodes: those of the
// chassis, and of the routes for replies.
func (x *Services) changedLocal(s *serviceState, nodes []string) []nb.Unit {
	touched := x.chassisUnits(nodes...)
	for _, node := range nodes {
		x.forgetLocal(s.Key, node)
		units, refused := x.routes.Put(s.Service, node, x.candidates(s, node))
		for other := range refused {
			x.forgetLocal(other, node)
		}
		touched = append(touched, units...)
	}
	return touched
}

// candidates are the Candidates of a Service with external policy Local on a node.
func (x *Services) candidates(s *serviceState, node string) int {
	l := x.onNode[node][s.Key]
	if l == nil || !s.outside || s.tooLarge {
		return 0
	}
	return s.limited().Candidates(s.on(node, l.slices))
}

// forgetLocal makes local compute the endpoints of a Service on a node again.
func (x *Services) forgetLocal(k service.Key, node string) {
	if l := x.onNode[node][k]; l != nil {
		l.variables, l.replies, l.current = nil, nil, false
	}
}

// local returns the variables and replies of a Service on a node.
func (x *Services) local(k service.Key, node string) *localEndpoints {
	l := x.onNode[node][k]
	if !l.current {
		x.computeLocal(l, x.all[k], node)
	}
	return l
}

// computeLocal computes the template variables and replies of a Service on a node from the endpoints there.
func (x *Services) computeLocal(l *localEndpoints, s *serviceState, node string) {
	l.variables, l.replies, l.current = nil, nil, true
	if s.tooLarge || s.served == 0 {
		return
	}
	r := service.Resolve(s.limited(), s.on(node, l.slices))
	if n, refused := x.routes.RefusedAt(s.Key, node); refused {
		r.Refused = map[string]int{node: n}
	}
	for name, value := range loadbalancer.Variables(&r, node, s.byGateway) {
		l.variables = append(l.variables, variable{x.share(name), value})
	}
	l.variables, l.replies = slices.Clip(l.variables), r.Replies(node)
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

func (s *serviceState) endpoints() (n int) {
	for _, sl := range s.slices {
		n += len(sl.Endpoints)
	}
	return n * len(s.Ports)
}
