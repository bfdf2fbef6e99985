package service

import (
	"math/bits"
	"net/netip"
	"slices"

	"ovn-k8s/lib/ipnet"
)

// OVN chooses the endpoints of most connections through hosts. For some Services hosts have to: see package nodeport. Each
// endpoint of each port is then up to two chains, four rules and with session affinity a set on every host. The kernel takes
// half a minute for 10 000 with affinity, and its time grows with the square; a transaction of 90 000 is too large for it.
//
// MaxChosen is the limit of such endpoints of all Services of a namespace: 1000 Services of 10, or one of 1000 with ten ports.
// MaxSpare is that of the endpoints of all its Services, for hosts with a reason of their own. There, OrdinarySpare of each
// Service without affinity do not count.
const (
	MaxChosen     = 10_000
	MaxSpare      = 10_000
	OrdinarySpare = 10
)

// Chosen is the number of endpoints, at all ports, among which every host chooses, rounded up: with session affinity or
// internal policy Local all of them, with external policy Local those of a node. Of the two families it is the larger number.
// It depends on the Service and its slices alone, so that the watcher and all hosts refuse the same Services.
func (r *Resolved) Chosen() int {
	all := r.Affinity > 0 || r.InternalLocal
	if !r.Ours || !all && !r.ExternalLocal {
		return 0
	}
	n := [2]int{}
	for i, p := range r.Ports {
		if p.NodePort == 0 && len(r.Outside) == 0 {
			continue
		}
		for f, any := range ipnet.Families() {
			switch es := r.Endpoints[i].Of(any); {
			case all:
				n[f] += len(es)
			case len(es) == MaxEndpoints && r.Most != nil:
				n[f] += max(r.Most[i][f], es.mostOnNode())
			default:
				n[f] += es.mostOnNode()
			}
		}
	}
	return rounded(max(n[0], n[1]))
}

// mostOnNode is the largest number of endpoints on one node.
func (es Endpoints) mostOnNode() (most int) {
	on := map[string]int{}
	for _, e := range es {
		on[e.Node]++
		most = max(most, on[e.Node])
	}
	return most
}

// Spare is the number of all endpoints at all ports, as Chosen, without session affinity that above OrdinarySpare.
func (r *Resolved) Spare() int {
	n, free := [2]int{}, OrdinarySpare
	if r.Affinity > 0 {
		free = 0
	}
	for _, es := range r.Endpoints {
		for f, any := range ipnet.Families() {
			n[f] += len(es.Of(any))
		}
	}
	return rounded(max(n[0], n[1]) - free)
}

// rounded rounds up by at most an eighth: so few changes of endpoints refuse other Services.
func rounded(n int) int {
	n = max(0, n)
	step := 1 << max(0, bits.Len(uint(n))-4)
	return (n + step - 1) / step * step
}

// Choose records whether hosts choose among all endpoints. If some hosts do not, that is a Problem; isHosts reports whether an
// address is a host's.
func (r *Resolved) Choose(overChosen, overSpare bool, isHosts func(netip.Addr) bool) {
	r.OverChosen, r.OverSpare = overChosen, overSpare
	atHosts := func(of Endpoints) bool {
		return slices.ContainsFunc(of, func(e Endpoint) bool { return isHosts(e.Addr) })
	}
	switch {
	case overChosen:
		r.AddProblem("TooManyEndpoints", "connections through hosts to service %s are not spread over its endpoints: at all ports these are %d, rounded up, more than older services of namespace %s leave of %d: use fewer ports or endpoints, no session affinity, or several namespaces", r.Key, r.Chosen(), r.Namespace, MaxChosen)
	case overSpare && slices.ContainsFunc(r.Endpoints, atHosts):
		r.AddProblem("TooManyEndpoints", "connections through hosts with an endpoint of service %s are not spread over its other endpoints: at all ports these are %d, rounded up, more than older services of namespace %s leave of %d: use fewer ports or endpoints, or several namespaces", r.Key, r.Spare(), r.Namespace, MaxSpare)
	}
}
