package desired

import (
	"iter"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/service"
)

// Outside implements answer.Services.
func (x *Services) Outside() iter.Seq[netip.Addr] { return x.claims.Outside() }

// Held implements answer.Services.
func (x *Services) Held(a netip.Addr) bool {
	return x.around.MayAnswer(a) && slices.ContainsFunc(x.claims.At(a), func(k service.Key) bool { return x.holds(k, a) })
}

// holds reports whether a Service has load balancers at an address outside.
func (x *Services) holds(k service.Key, a netip.Addr) bool {
	of := x.all[k]
	return of != nil && of.known && !of.tooLarge && slices.ContainsFunc(of.Ports, func(p service.Port) bool {
		holder, _ := x.claims.Holder(service.Claim{Addr: a, Protocol: p.Protocol, Port: p.Port})
		return holder == k
	})
}

// Local implements answer.Services.
func (x *Services) Local(a netip.Addr) func(node string) int {
	local := slices.DeleteFunc(x.claims.At(a), func(k service.Key) bool {
		of := x.all[k]
		return of == nil || !of.ExternalLocal || !x.holds(k, a)
	})
	return func(node string) (n int) {
		for _, k := range local {
			if x.hasEndpointOn(k, node, a) {
				n++
			}
		}
		return n
	}
}

// hasEndpointOn reports whether a Service has a usable endpoint of an address family on a node.
func (x *Services) hasEndpointOn(k service.Key, node string, family netip.Addr) bool {
	l := x.onNode[node][k]
	if l == nil {
		return false
	}
	for _, name := range l.slices {
		here := x.all[k].slices[name].On(node).Endpoints
		if slices.ContainsFunc(here, func(h service.Host) bool {
			return h.State != service.Unready && h.Addr.Is4() == family.Is4()
		}) {
			return true
		}
	}
	return false
}
