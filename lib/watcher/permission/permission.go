// Package permission decides which units a watcher may write: it follows from the Lease and from the known facts.
package permission

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

// More kinds for a watcher to wait for, though they are none of API objects.
const (
	Topology = "topology"
	Owner    = "a database of this cluster"
)

// Nodes is the name of the kind of Nodes.
var Nodes = kube.KindOf(&corev1.Node{}).Name

// A Permission is that of an engine. The engine's goroutine owns it.
type Permission struct {
	Full  bool // this watcher holds the Lease
	Asked bool // the Southbound database was asked for hosts, or could not be
	// Missing are the names of kinds without a complete list so far. Until it is empty, only gateways are written.
	Missing map[string]bool
	lost    map[string]error // why kinds cannot be read at present
	awaited atomic.Value     // see Awaits
}

// New returns the Permission of an engine without knowledge of its kinds yet.
func New(kinds []kube.Kind) *Permission {
	p := &Permission{Missing: map[string]bool{Topology: true}, lost: map[string]error{}}
	for _, k := range kinds {
		p.Missing[k.Name] = true
	}
	p.tell()
	return p
}

// Lose records why a kind cannot be read at present.
func (p *Permission) Lose(kind string, err error) {
	p.lost[kind] = err
	p.tell()
}

// Find records a complete list of a kind. It reports whether that was missing.
func (p *Permission) Find(kind string) (missing bool) {
	missing = p.Missing[kind]
	delete(p.Missing, kind)
	delete(p.lost, kind)
	p.tell()
	return missing
}

func (p *Permission) tell() { p.awaited.Store(kube.Awaited(p.Missing, p.lost)) }

// Awaits names the kinds that are not read, and why, for people; "": all are. It may be called at any time.
func (p *Permission) Awaits() string { return p.awaited.Load().(string) }

// All reports whether all units may be written.
func (p *Permission) All() bool { return p.Full && len(p.Missing) == 0 }

// Write reports whether a unit may be written. Units of gateways follow from the databases and from probes of their
// hosts, and do not wait until all objects of the API server are read. Units of addresses on LANs move with the
// gateways, but wait for all objects: Services have these addresses.
func (p *Permission) Write(u nb.Unit) bool {
	if p.All() {
		return true
	}
	_, gateway := topology.GatewayOf(u)
	_, answers := answer.Of(u)
	return p.DecideGateways() && (gateway || answers && len(p.Missing) == 0)
}

// DecideGateways reports whether enough is known to decide the state of gateways.
func (p *Permission) DecideGateways() bool {
	return p.Asked && !p.Missing[Topology] && !p.Missing[Owner] && !p.Missing[Nodes]
}
