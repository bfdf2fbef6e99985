package ports

import (
	"fmt"
	"slices"

	"ovn-k8s/lib/desired/service"
)

// OrdinaryFrontends is the number of frontends of a Service at addresses outside without a limit of the namespace.
// MaxFrontends is the limit of all others of its Services together: each is up to three elements of sets, a rule or a flow
// on every host.
const (
	OrdinaryFrontends = 10
	MaxFrontends      = 20_000
)

// Frontends decides which Services have frontends at addresses outside. The answer depends on the Services alone: a host
// does not know nodes and gateways, and must refuse the same Services as the watcher, which reports them. The zero value
// has none.
type Frontends struct {
	// of has the Services of each namespace with more than OrdinaryFrontends, the older first.
	of map[string][]*outer
}

// An outer is a Service with addresses outside, as it was put.
type outer struct {
	service.Service
	frontends int // above OrdinaryFrontends
	refused   bool
}

// Put records a Service. It returns the other Services whose addresses outside are refused from now on, or no longer, and
// the Service itself: each without addresses outside if they are refused.
func (x *Frontends) Put(s service.Service) []service.Service {
	list, one := x.without(s.Key), &outer{Service: s, frontends: s.Outer() - OrdinaryFrontends}
	if one.frontends > 0 {
		at, _ := slices.BinarySearchFunc(list, one, func(a, b *outer) int { return a.Older(b.Service) })
		list = slices.Insert(list, at, one)
	}
	others := x.decide(s.Namespace, list)
	others = slices.DeleteFunc(others, func(o service.Service) bool { return o.Key == s.Key })
	return append(others, one.allowed())
}

// Remove forgets a Service. It returns others as Put does.
func (x *Frontends) Remove(k service.Key) []service.Service {
	return x.decide(k.Namespace, x.without(k))
}

// without returns the list of the namespace of k without k.
func (x *Frontends) without(k service.Key) []*outer {
	return slices.DeleteFunc(x.of[k.Namespace], func(o *outer) bool { return o.Key == k })
}

// decide keeps the list of a namespace, and refuses the younger Services if MaxFrontends has no room for all. It returns
// the Services with another decision.
func (x *Frontends) decide(namespace string, list []*outer) (changed []service.Service) {
	if x.of == nil {
		x.of = map[string][]*outer{}
	}
	if x.of[namespace] = list; len(list) == 0 {
		delete(x.of, namespace)
	}
	room := MaxFrontends
	for _, o := range list {
		refused := o.frontends > room
		if !refused {
			room -= o.frontends
		}
		if refused != o.refused {
			o.refused = refused
			changed = append(changed, o.allowed())
		}
	}
	return changed
}

// allowed is the Service without addresses outside, if they are refused.
func (o *outer) allowed() service.Service {
	s := o.Service
	if o.refused {
		s.Problems = slices.Clip(s.Problems)
		s.RefuseOutside(fmt.Sprintf("above %d they would be %d frontends (ports times addresses times source ranges), and older services of namespace %s leave less of %d: use fewer, or several namespaces",
			OrdinaryFrontends, o.frontends, s.Namespace, MaxFrontends))
	}
	return s
}
