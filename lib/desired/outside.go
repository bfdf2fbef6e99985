package desired

import (
	"iter"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/service"
)

// Outside implements answer.Services.
func (s *Services) Outside() iter.Seq[netip.Addr] { return s.claims.Outside() }

// Held implements answer.Services.
func (s *Services) Held(a netip.Addr) bool {
	return s.around.MayAnswer(a) && slices.ContainsFunc(s.claims.At(a), func(k service.Key) bool { return s.holds(k, a) })
}

// holds reports whether a Service has load balancers at an address outside.
func (s *Services) holds(k service.Key, a netip.Addr) bool {
	of := s.all[k]
	return of != nil && of.known && !of.tooLarge && slices.ContainsFunc(of.Ports, func(p service.Port) bool {
		holder, _ := s.claims.Holder(service.Claim{Addr: a, Protocol: p.Protocol, Port: p.Port})
		return holder == k
	})
}

// Local implements answer.Services.
func (s *Services) Local(a netip.Addr) func(node string) int {
	local := slices.DeleteFunc(s.claims.At(a), func(k service.Key) bool {
		of := s.all[k]
		return of == nil || !of.ExternalLocal || !s.holds(k, a)
	})
	return func(node string) (n int) {
		for _, k := range local {
			if s.hasEndpointOn(k, node, a) {
				n++
			}
		}
		return n
	}
}

// hasEndpointOn reports whether a Service has a usable endpoint of an address family on a node.
func (s *Services) hasEndpointOn(k service.Key, node string, family netip.Addr) bool {
	l := s.onNode[node][k]
	if l == nil {
		return false
	}
	for _, name := range l.slices {
		here := s.all[k].slices[name].On(node).Endpoints
		if slices.ContainsFunc(here, func(h service.Host) bool {
			return h.State != service.Unready && h.Addr.Is4() == family.Is4()
		}) {
			return true
		}
	}
	return false
}
