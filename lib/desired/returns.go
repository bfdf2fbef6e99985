package desired

import (
	"maps"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// returns counts the endpoints of Services with external policy Local, for the routes of replies to clients outside.
type returns struct {
	services int                // with this policy
	on       map[string]replies // by node
}

// replies are the Candidates of Services on one node.
type replies struct {
	of      map[*serviceState]int
	all     int
	refused map[*serviceState]bool // see service.Resolved.Refused
}

// count records the Candidates of a Service on a node. It reports whether it has, or had, some.
func (r *returns) count(s *serviceState, node string, now int) bool {
	here := r.on[node]
	was := here.of[s]
	if was == 0 && now == 0 {
		return false
	}
	if here.of == nil {
		here.of = map[*serviceState]int{}
	}
	here.all += now - was
	if here.of[s] = now; now == 0 {
		delete(here.of, s)
	}
	if r.on[node] = here; len(here.of) == 0 {
		delete(r.on, node)
	}
	return true
}

// decide returns the Services refused on a node: the younger ones, if MaxReplies has no room for all.
func (r replies) decide() map[*serviceState]bool {
	if r.all <= service.MaxReplies {
		return nil
	}
	refused, room := map[*serviceState]bool{}, service.MaxReplies
	byAge := slices.SortedFunc(maps.Keys(r.of), func(a, b *serviceState) int { return a.Older(b.Service) })
	for _, s := range byAge {
		if n := r.of[s]; n > room {
			refused[s] = true
		} else {
			room -= n
		}
	}
	return refused
}

// refusedOn are the nodes with the Service refused, with its Candidates there.
func (r *returns) refusedOn(s *serviceState) (out map[string]int) {
	if !s.outside {
		return nil
	}
	for node, here := range r.on {
		if here.refused[s] {
			if out == nil {
				out = map[string]int{}
			}
			out[node] = here.of[s]
		}
	}
	return out
}

// changedReplies returns the units to compute again after a change of a Service's endpoints on a node: the node's
// ReturnUnit, and the Services newly refused there, or no longer.
func (x *Services) changedReplies(s *serviceState, node string) (touched []nb.Unit) {
	r := &x.returns
	if !r.count(s, node, x.candidates(s, node)) {
		return nil
	}
	if here, ok := r.on[node]; ok {
		was := here.refused
		here.refused = here.decide()
		r.on[node] = here
		for other := range facts.OtherKeys(was, here.refused, facts.Same) {
			touched = append(touched, other.Unit())
			x.forgetLocal(other.Key, node)
		}
	}
	if x.facts.Now().Cluster.Nodes[node] != nil {
		touched = append(touched, service.ReturnUnit(node))
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

// countLocal counts the Services with external policy Local: was and is are for one Service, before and now. It
// returns InsideUnit for the first such Service, and after the last one.
func (x *Services) countLocal(was, is bool) []nb.Unit {
	r := &x.returns
	before := r.services
	switch {
	case is && !was:
		r.services++
	case was && !is:
		r.services--
	}
	if (before > 0) == (r.services > 0) {
		return nil
	}
	return []nb.Unit{service.InsideUnit}
}

// returnRows returns the policies for replies of the endpoints on a node.
func (x *Services) returnRows(node string) ([]nb.Row, error) {
	var from []service.Reply
	for s := range x.returns.on[node].of {
		from = append(from, x.local(s.Key, node).replies...)
	}
	return x.around.ReturnRows(node, from), nil
}

// insideRows returns the policies for traffic inside the cluster, if replies have policies.
func (x *Services) insideRows() ([]nb.Row, error) {
	if x.returns.services == 0 {
		return nil, nil
	}
	return x.around.InsideRows(), nil
}

// returnUnits lists the units of nodes with endpoints of Services with the external policy Local.
func (x *Services) returnUnits() (out []nb.Unit) {
	for node := range x.returns.on {
		if x.facts.Now().Cluster.Nodes[node] != nil {
			out = append(out, service.ReturnUnit(node))
		}
	}
	return out
}
