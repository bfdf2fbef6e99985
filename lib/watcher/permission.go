package watcher

import (
	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// The engine also waits for these, though they are no kinds of API objects.
const (
	topologyKind = "topology"
	ownerKind    = "a database of this cluster"
)

// A permission decides which units may be written: it follows from the Lease and from the known facts.
type permission struct {
	full  bool   // this watcher holds the Lease
	asked bool   // the Southbound database was asked for hosts, or could not be
	nodes string // the name of the kind of Nodes
	// missing are the names of kinds without a complete list so far. Until it is empty, only gateways are written.
	missing map[string]bool
}

// all reports whether all units may be written.
func (p *permission) all() bool { return p.full && len(p.missing) == 0 }

// write reports whether a unit may be written. Units of gateways follow from the databases and from probes of their
// hosts, and do not wait until all objects of the API server are read. Units of addresses on LANs move with the
// gateways, but wait for all objects: Services have these addresses.
func (p *permission) write(u nb.Unit) bool {
	if p.all() {
		return true
	}
	_, gateway := topology.GatewayOf(u)
	_, answers := answer.Of(u)
	return p.decideGateways() && (gateway || answers && len(p.missing) == 0)
}

// decideGateways reports whether enough is known to decide the state of gateways.
func (p *permission) decideGateways() bool {
	return p.asked && !p.missing[topologyKind] && !p.missing[ownerKind] && !p.missing[p.nodes]
}
