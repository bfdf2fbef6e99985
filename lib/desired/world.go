// Package desired holds the latest version of every object, and computes the Northbound rows from them.
//
// It does no I/O and knows no time: the same calls in the same order always give the same answers. One goroutine owns
// a World.
package desired

import (
	"reflect"
	"slices"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/infrastructure"
	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/nb"
)

// A World is the latest version of every object.
//
// Put and Remove record a change and return the units to compute again. Allocate, after one or many changes and before
// Rows, assigns addresses, looks again at large Services and at the limits of policies, and returns more units. All other
// units have the same Rows as before.
type World struct {
	facts          *facts.Index
	infrastructure *infrastructure.Infrastructure
	kinds          map[reflect.Type][]kind.Kind
	units          map[string]feature.Units // by prefix
	features       []feature.Feature        // in the order in which they get facts
	Policies       *Policies
	Pods           *pod.Index

	Services  *Services
	Answers   *answer.Index
	hostPorts *hostport.Index
}

// NewWorld returns an empty world.
func NewWorld() *World {
	w := &World{facts: facts.NewIndex()}
	w.Policies = &Policies{w.facts, policy.NewIndex()}
	claims := &ports.Services{}
	hostPorts := ports.NewHostPorts(w.facts, claims)
	w.Services = newServices(w.facts, w.factsChanged, claims, hostPorts)
	w.Answers, w.hostPorts = w.Services.answers, hostport.NewIndex(w.facts, hostPorts)
	w.Pods = pod.NewIndex(w.facts, pod.Additions{Changed: hostPorts.Change, Groups: w.Policies.index.Refs, Rows: w.hostPorts.Rows})
	w.infrastructure = infrastructure.New(w.facts, w.Pods.Marks)
	w.features = []feature.Feature{w.infrastructure, w.Services, w.Services.hosts, w.Services.routes, w.hostPorts, w.Answers, guard.New(w.facts), w.Policies, w.Pods}
	w.kinds, w.units = w.allKinds(), w.allUnits()
	return w
}

// Facts are the latest facts about the network.
func (w *World) Facts() *facts.Facts { return w.facts.Now() }

// factsChanged lets all features look at other facts, and returns the units to compute again.
func (w *World) factsChanged(c facts.Change) (touched []nb.Unit) {
	if c.Now == nil {
		return nil
	}
	for _, f := range w.features {
		touched = append(touched, f.FactsChanged(c)...)
	}
	return touched
}

// Allocate assigns missing addresses to pods, see pod.Index.Allocate, and looks once at large Services with changed
// endpoints, see Services.settle, and at namespaces with changed policies, see policy.Index.Settle.
func (w *World) Allocate() []nb.Unit {
	return slices.Concat(w.Services.settle(), w.Policies.index.Settle(), w.Pods.Allocate())
}

// Size estimates the work of ovn-northd for each change, in logical ports of pods. With 100 nodes and OVN 23.03, a
// node costs as much as five of them, and a Service as much as two.
func (w *World) Size() int {
	return w.Pods.Len() + 5*len(w.Facts().Cluster.Nodes) + 2*len(w.Services.all)
}

// HostPorts returns the pod of unit u and its place, if the pod has hostPorts and addresses.
func (w *World) HostPorts(u nb.Unit) (hostport.Node, hostport.Pod, bool) {
	a, ok := w.Pods.Annotation(u)
	if !ok || len(a.Pod.HostPorts)+len(a.Pod.Problems) == 0 {
		return hostport.Node{}, hostport.Pod{}, false
	}
	n, hp := w.hostPorts.Of(a.Pod, facts.Addrs(a.Addresses.IPs))
	return n, hp, true
}
