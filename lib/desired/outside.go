package desired

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// outside are the addresses outside with frontends of Services, for package answer.
type outside struct{ *Services }

// Outside implements answer.Services.
func (x outside) Outside() iter.Seq[netip.Addr] { return x.claims.Outside() }

// Held implements answer.Services.
func (x outside) Held(a netip.Addr) bool {
	if x.inputs.IsHosts(a) {
		return false
	}
	for k := range x.claims.At(a) {
		if x.holds(k, a) && x.all[k].MayHave(a, x.inputs.Network) {
			return true
		}
	}
	return false
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
	var local []service.Key
	for k := range x.claims.At(a) {
		if of := x.all[k]; of != nil && of.ExternalLocal && x.holds(k, a) {
			local = append(local, k)
		}
	}
	return func(node string) (n int) {
		for _, k := range local {
			if x.local.hasEndpoint(k, node, a) {
				n++
			}
		}
		return n
	}
}

// outdate records addresses outside for chooseGateways.
func (x *Services) outdate(addrs []netip.Addr) {
	for _, a := range addrs {
		x.outdated[a] = true
	}
}

// chooseGateways chooses the gateways of outdated addresses, after all changes of an event: many Services may have the
// same addresses. It returns the units affected.
func (x *Services) chooseGateways() []nb.Unit {
	addrs := slices.Collect(maps.Keys(x.outdated))
	x.outdated = map[netip.Addr]bool{}
	return x.answers.Again(addrs...)
}

// addressesOf are the addresses with frontends of a Service, or of others because of it, for clients outside.
func (x *Services) addressesOf(k service.Key) []netip.Addr {
	if s := x.all[k]; s != nil {
		return slices.Concat(s.Outside, s.ClusterIPs)
	}
	return nil
}
