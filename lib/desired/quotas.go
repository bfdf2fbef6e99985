package desired

import (
	"slices"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// quotas limit a weight of the Services of each namespace together. Older Services come first.
type quotas struct {
	limit    int
	chargeOf func(*serviceState) *charge
	of       map[string]*quota
	due      map[string]bool // namespaces to decide again
}

// A quota is the Services of one namespace with a weight.
type quota struct{ byAge []*serviceState }

// A charge is a Service's share of a limit of its namespace.
type charge struct {
	created int64 // of the Service, as in the order of the quota
	weight  int
	refused bool
}

// newQuotas returns quotas without Services. chargeOf returns the place of a Service's charge.
func newQuotas(limit int, chargeOf func(*serviceState) *charge) quotas {
	return quotas{limit, chargeOf, map[string]*quota{}, map[string]bool{}}
}

// compare orders Services by age, as of their charges.
func (c *quotas) compare(a, b *serviceState) int {
	age := func(s *serviceState) service.Service {
		return service.Service{Key: s.Key, Created: c.chargeOf(s).created}
	}
	return age(a).Older(age(b))
}

// charge records the weight of a Service.
func (c *quotas) charge(s *serviceState, weight int) {
	is := c.chargeOf(s)
	if is.weight == weight && (weight == 0 || is.created == s.Created) {
		return
	}
	in := c.of[s.Namespace]
	if in == nil {
		in = &quota{}
		c.of[s.Namespace] = in
	}
	if is.weight > 0 {
		at, _ := slices.BinarySearchFunc(in.byAge, s, c.compare)
		in.byAge = slices.Delete(in.byAge, at, at+1)
	}
	*is = charge{s.Created, weight, is.refused && weight > 0}
	if weight > 0 {
		at, _ := slices.BinarySearchFunc(in.byAge, s, c.compare)
		in.byAge = slices.Insert(in.byAge, at, s)
	}
	c.due[s.Namespace] = true
}

// decide refuses the younger Services of a namespace if the limit has no room for all. It returns the Services newly refused,
// or no longer.
func (c *quotas) decide(in *quota) (changed []*serviceState) {
	room := c.limit
	for _, s := range in.byAge {
		is := c.chargeOf(s)
		refused := is.weight > room
		if !refused {
			room -= is.weight
		}
		if refused != is.refused {
			is.refused = refused
			changed = append(changed, s)
		}
	}
	return changed
}

// settle decides again which Services are refused, after changes of weights. It calls update for each Service with another
// decision, which may change weights again, and returns the units affected.
func (c *quotas) settle(update func(service.Key) []nb.Unit) (touched []nb.Unit) {
	for len(c.due) > 0 {
		for namespace := range c.due {
			delete(c.due, namespace)
			in := c.of[namespace]
			for _, s := range c.decide(in) {
				touched = append(touched, s.Unit())
				touched = append(touched, update(s.Key)...)
			}
			if len(in.byAge) == 0 && !c.due[namespace] {
				delete(c.of, namespace)
			}
		}
	}
	return touched
}
