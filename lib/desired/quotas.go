package desired

import (
	"slices"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// quotas has the Services of each namespace with a Weight above loadbalancer.Ordinary. Together these are limited.
type quotas struct {
	of  map[string]*quota
	due map[string]bool // namespaces to decide again
}

// A quota is the heavy Services of one namespace.
type quota struct{ byAge []*serviceState }

// A charge is a Service's share of the limit of its namespace.
type charge struct {
	created int64 // of the Service, as in the order of the quota
	weight  int   // above loadbalancer.Ordinary
	refused bool  // see service.Resolved.OverQuota
}

func newQuotas() quotas { return quotas{map[string]*quota{}, map[string]bool{}} }

func (s *serviceState) compareCharges(o *serviceState) int {
	age := func(s *serviceState) service.Service { return service.Service{Key: s.Key, Created: s.charge.created} }
	return age(s).Older(age(o))
}

// charge records the weight of a Service.
func (c *quotas) charge(s *serviceState, weight int) {
	weight = loadbalancer.Charged(weight)
	if s.charge.weight == weight && (weight == 0 || s.charge.created == s.Created) {
		return
	}
	in := c.of[s.Namespace]
	if in == nil {
		in = &quota{}
		c.of[s.Namespace] = in
	}
	if s.charge.weight > 0 {
		at, _ := slices.BinarySearchFunc(in.byAge, s, (*serviceState).compareCharges)
		in.byAge = slices.Delete(in.byAge, at, at+1)
	}
	s.charge = charge{s.Created, weight, s.charge.refused && weight > 0}
	if weight > 0 {
		at, _ := slices.BinarySearchFunc(in.byAge, s, (*serviceState).compareCharges)
		in.byAge = slices.Insert(in.byAge, at, s)
	}
	c.due[s.Namespace] = true
}

// decide refuses the younger Services if the limit has no room for all. It returns the Services newly refused, or no
// longer.
func (c *quota) decide() (changed []*serviceState) {
	room := loadbalancer.MaxWeight
	for _, s := range c.byAge {
		refused := s.charge.weight > room
		if !refused {
			room -= s.charge.weight
		}
		if refused != s.charge.refused {
			s.charge.refused = refused
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
			for _, s := range in.decide() {
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
