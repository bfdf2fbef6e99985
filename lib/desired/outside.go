package desired

import (
	"iter"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/service"
)

// outside are the addresses outside with frontends of Services, for package answer.
type outside struct{ *Services }

// Outside implements answer.Services.
func (x outside) Outside() iter.Seq[netip.Addr] { return x.claims.Outside() }

// Held implements answer.Services.
func (x outside) Held(a netip.Addr) bool {
	return x.around.MayAnswer(a) && slices.ContainsFunc(x.claims.At(a), func(k service.Key) bool { return x.holds(k, a) })
}

// holds reports whether a Service has load balancers at an address outside.
func (x outside) holds(k service.Key, a netip.Addr) bool {
	of := x.all[k]
	return of != nil && of.known && !of.tooLarge && slices.ContainsFunc(of.Ports, func(p service.Port) bool {
		holder, _ := x.claims.Holder(service.Claim{Addr: a, Protocol: p.Protocol, Port: p.Port})
		return holder == k
	})
}

// Local implements answer.Services.
func (x outside) Local(a netip.Addr) func(node string) int {
	local := slices.DeleteFunc(x.claims.At(a), func(k service.Key) bool {
		of := x.all[k]
		return of == nil || !of.ExternalLocal || !x.holds(k, a)
	})
	return func(node string) (n int) {
		for _, k := range local {
			if x.local.hasEndpoint(k, node, a) {
				n++
			}
		}
		return n
	}
}
