package desired

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// services is the part of the World that Services are made of.
type services struct {
	all    map[service.Key]*serviceState
	owners map[sliceKey]service.Key // of endpoint slices
	claims service.Claims
	byNode map[service.Key]bool // have variables
	near   map[service.Key]bool // have load balancers for groups of nodes
	zones  map[string]string    // by node
	// chassis are the hosts of the topology.
	chassis map[string]chassis
	around  service.Surroundings
	// configured are the subnets of Services that the settings name, cidrs those of
	// ServiceCIDRs by their names.
	configured service.Ranges
	cidrs      map[string]service.Ranges
	shared     map[string]string // one copy of each string that endpoints share
}

// A serviceState is a Service and its slices, one of which may be missing.
type serviceState struct {
	service.Service // Ours is false until the Service is known
	known           bool
	slices          map[string]service.Slice
}

type sliceKey struct{ namespace, name string }

func newServices() services {
	return services{
		all: map[service.Key]*serviceState{}, owners: map[sliceKey]service.Key{}, byNode: map[service.Key]bool{}, near: map[service.Key]bool{},
		zones: map[string]string{}, shared: map[string]string{}, cidrs: map[string]service.Ranges{},
	}
}

func (w *World) serviceState(k service.Key) *serviceState {
	s := w.services.all[k]
	if s == nil {
		s = &serviceState{slices: map[string]service.Slice{}}
		s.Key = k
		w.services.all[k] = s
	}
	return s
}

func (w *World) putService(s service.Service) []nb.Unit {
	return w.changeService(s.Key, func() []service.Key {
		state := w.serviceState(s.Key)
		state.Service, state.known = s, true
		return append(w.services.claims.Put(s), w.reserve(s.Key)...)
	})
}

func (w *World) removeService(k service.Key) []nb.Unit {
	if s := w.services.all[k]; s == nil || !s.known {
		return nil
	}
	return w.changeService(k, func() []service.Key {
		state := w.services.all[k]
		state.Service, state.known = service.Service{Key: k}, false
		return append(w.services.claims.Remove(k), w.reserve(k)...)
	})
}

func (w *World) putSlice(from *discoveryv1.EndpointSlice) []nb.Unit {
	name, k, ok := service.SliceKey(from)
	id := sliceKey{from.Namespace, name}
	var touched []nb.Unit
	if was, had := w.services.owners[id]; had && (!ok || was != k) {
		touched = w.removeSlice(id)
	}
	if !ok {
		return touched
	}
	return append(touched, w.changeService(k, func() []service.Key {
		w.serviceState(k).slices[name] = service.NewSlice(from, w.services.share)
		w.services.owners[id] = k
		return w.reserve(k)
	})...)
}

func (w *World) removeSlice(id sliceKey) []nb.Unit {
	k, ok := w.services.owners[id]
	if !ok {
		return nil
	}
	return w.changeService(k, func() []service.Key {
		delete(w.services.all[k].slices, id.name)
		delete(w.services.owners, id)
		return w.reserve(k)
	})
}

// reserve keeps the API server's addresses for it, if k is its Service, and
// returns the Services that wanted one.
func (w *World) reserve(k service.Key) []service.Key {
	if k != service.APIServer() {
		return nil
	}
	s := w.services.all[k]
	return w.services.claims.Reserve(service.Resolve(s.Service, slices.Collect(maps.Values(s.slices))).Endpoints)
}

// replaceServices records objs as all Services or all endpoint slices.
func (w *World) replaceServices(example any, objs []any) []nb.Unit {
	gone := map[sliceKey]any{}
	switch example.(type) {
	case *corev1.Service:
		for k, s := range w.services.all {
			if s.known {
				gone[sliceKey{k.Namespace, k.Name}] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
			}
		}
	default:
		for k := range w.services.owners {
			gone[k] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name}}
		}
	}
	var touched []nb.Unit
	for _, o := range objs {
		m := o.(metav1.Object)
		delete(gone, sliceKey{m.GetNamespace(), m.GetName()})
		touched = append(touched, w.Put(o)...)
	}
	for _, o := range gone {
		touched = append(touched, w.Remove(o)...)
	}
	return touched
}

// share returns the one copy of a string that is kept.
func (s *services) share(text string) string {
	if one, ok := s.shared[text]; ok {
		return one
	}
	text = strings.Clone(text)
	s.shared[text] = text
	return text
}

// changeService makes a change that concerns one Service, which returns what
// others it concerns, and says which units that touches: theirs, and those of
// the hosts whose variables are others then.
func (w *World) changeService(k service.Key, change func() []service.Key) []nb.Unit {
	before := w.variablesOf(k)
	touched := append(w.hostPortRivals(k), k.Unit())
	for _, other := range change() {
		touched = append(touched, other.Unit())
	}
	touched = append(touched, w.hostPortRivals(k)...)
	if s := w.services.all[k]; !s.known && len(s.slices) == 0 {
		delete(w.services.all, k)
	}
	r := w.resolved(k)
	if delete(w.services.byNode, k); r.ByNode() {
		w.services.byNode[k] = true
	}
	if delete(w.services.near, k); r.Near() {
		w.services.near[k] = true
	}
	after := w.variablesOf(k)
	for id := range w.services.chassis {
		if !maps.Equal(before[id], after[id]) {
			touched = append(touched, ChassisUnit(id))
		}
	}
	return touched
}

// variablesOf are the variables of a Service, by chassis.
func (w *World) variablesOf(k service.Key) map[string]map[string]string {
	if !w.services.byNode[k] {
		return nil
	}
	r := w.resolved(k)
	nodes := w.services.all[k].nodes()
	out := map[string]map[string]string{}
	for id, c := range w.services.chassis {
		if nodes[c.node] { // others have none
			out[id] = r.Variables(c.node, w.cluster.Subnets)
		}
	}
	return out
}

// resolved joins a Service and its slices.
func (w *World) resolved(k service.Key) service.Resolved {
	s := w.services.all[k]
	if s == nil || !s.known {
		return service.Resolved{}
	}
	r := service.Resolve(s.Service, slices.Collect(maps.Values(s.slices)))
	r.LoseTo(w.services.claims.Lost(k))
	r.Taken = w.services.claims.Taken(k)
	return r
}

// Service returns the Service that is unit u, with its endpoints.
func (w *World) Service(u nb.Unit) (service.Resolved, bool) {
	k, ok := service.KeyOf(u)
	if s := w.services.all[k]; !ok || s == nil || !s.known {
		return service.Resolved{}, false
	}
	return w.resolved(k), true
}

// ServiceWays lists the ways into the Service that is unit u.
func (w *World) ServiceWays(u nb.Unit) []service.Way {
	r, _ := w.Service(u)
	return r.Ways(w.services.around)
}

// serviceRows returns the load balancers of a Service. What can be done is done;
// the rest is the Problem.
func (w *World) serviceRows(k service.Key) ([]nb.Row, error) {
	r := w.resolved(k)
	rows := r.Rows(w.services.around)
	if len(r.Problems) == 0 {
		return rows, nil
	}
	p := &Problem{Reason: r.Problems[0].Reason}
	for i, one := range r.Problems {
		if i == maxProblems {
			p.Message += fmt.Sprintf("; and %d more", len(r.Problems)-i)
			break
		}
		p.Message += strings.Repeat("; ", min(i, 1)) + one.Message
	}
	return rows, p
}

// maxProblems is how many problems of one Service are told: an Event has room
// for 1024 characters.
const maxProblems = 4

// putZone records the zone of a node and reports whether it was another one. What
// that touches is left to lookAround: hints of endpoints are about zones.
func (w *World) putZone(node, zone string) bool {
	if w.services.zones[node] == zone {
		return false
	}
	if w.services.zones[node] = w.services.share(zone); zone == "" {
		delete(w.services.zones, node)
	}
	return true
}

// isOn reports whether an endpoint is on one of some nodes.
func (s *serviceState) isOn(nodes map[string]bool) bool {
	if len(nodes) == 0 {
		return false
	}
	for _, sl := range s.slices {
		if slices.ContainsFunc(sl.Endpoints, func(h service.Host) bool { return nodes[h.Node] }) {
			return true
		}
	}
	return false
}

// nodes are those that have endpoints.
func (s *serviceState) nodes() map[string]bool {
	out := map[string]bool{}
	for _, sl := range s.slices {
		for _, h := range sl.Endpoints {
			out[h.Node] = true
		}
	}
	return out
}

// otherKeys are the keys under which two maps differ.
func otherKeys[K comparable, V any](a, b map[K]V, equal func(V, V) bool) map[K]bool {
	out := map[K]bool{}
	for k := range merged(a, b) {
		was, had := a[k]
		if now, has := b[k]; had != has || !equal(was, now) {
			out[k] = true
		}
	}
	return out
}

func equal(a, b bool) bool { return a == b }

// set is a set of some values.
func set[K comparable](values []K) map[K]bool {
	out := make(map[K]bool, len(values))
	for _, v := range values {
		out[v] = true
	}
	return out
}

func merged[K comparable, V any](a, b map[K]V) map[K]V {
	out := map[K]V{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
