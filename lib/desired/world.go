// Package desired holds the latest version of every object, and computes the Northbound rows from them.
//
// It does no I/O and knows no time: the same calls in the same order always give the same answers. One goroutine owns
// a World.
package desired

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/network"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A World is the latest version of every object.
//
// Put and Remove record a change and return the units to compute again. Settle then assigns addresses and returns
// more units. All other units have the same Rows as before.
type World struct {
	facts   *facts.Index
	network *network.Network
	units   map[string]feature.Units // by prefix
	nodes   map[string]*node         // by name of the switch: of the topology, or with pods
	pods    map[pod.Key]*podState    // without those that need no port
	taken   map[pod.Key]string       // pods with the port name of a gateway's NIC, and that gateway
	addressing

	policies *policy.Index

	services
	Answers   *answer.Index
	hostPorts *hostport.Index
}

// NewWorld returns an empty world.
func NewWorld() *World {
	w := &World{
		facts: facts.NewIndex(), nodes: map[string]*node{}, pods: map[pod.Key]*podState{}, addressing: newAddressing(),
		policies: policy.NewIndex(), services: newServices(),
	}
	w.Answers = answer.NewIndex(w.facts, &w.services)
	w.hostPorts = hostport.NewIndex(w.facts, &w.services.claims)
	w.network = network.New(w.facts, func(sw string) []netip.Addr {
		if n := w.nodes[sw]; n != nil {
			return n.next()
		}
		return nil
	})
	w.units = w.allUnits()
	return w
}

// Facts are the latest facts about the network.
func (w *World) Facts() *facts.Facts { return w.facts.Now() }

// look lets all features look at other facts, and returns the units to compute again.
func (w *World) look(c facts.Change) []nb.Unit {
	if c.Now == nil {
		return nil
	}
	touched := w.network.Look(c)
	for _, look := range []func(facts.Change) []nb.Unit{w.lookServices, w.hostPorts.Look, w.Answers.Look, w.lookPolicies, w.lookPods} {
		touched = append(touched, look(c)...)
	}
	return touched
}

func (w *World) putNodes(nodes []*corev1.Node, gone []types.NamespacedName) []nb.Unit {
	return w.look(w.facts.PutNodes(nodes, gone))
}

func (w *World) nodeNames() []types.NamespacedName { return clusterWide(maps.Keys(w.Facts().Nodes)) }

func (w *World) putAssignment(a pod.Assignment) []nb.Unit {
	w.previous[a.Key] = a
	return nil
}

func (w *World) putMarks(m pod.Marks) []nb.Unit {
	w.marks[m.Node] = m.Next
	return nil
}

// podRows returns the rows of a pod.
func (w *World) podRows(k pod.Key) ([]nb.Row, error) {
	p := w.pods[k]
	if p == nil {
		return nil, nil
	}
	if p.addrs.MAC == "" {
		return nil, p.problem
	}
	rows := pod.Rows(p.Pod, p.addrs)
	if p.mismatch() != "" { // for commands: they must not remove addresses in use
		rows[0].Model.(*nbdb.LogicalSwitchPort).ExternalIDs[names.RunningIPs] = ipnet.Join(p.StatusIPs)
	}
	rows[0].In = append(rows[0].In, w.policies.Refs(k)...)
	more, err := w.hostPorts.Rows(p.Pod, facts.Addrs(p.addrs.IPs))
	if p.problem != nil {
		err = p.problem
	}
	return append(rows, more...), err
}

func (w *World) podUnits() []nb.Unit { return feature.UnitsOf(w.pods, pod.Key.Unit) }

// Size estimates the work of ovn-northd for each change, in logical ports of pods. With 100 nodes and OVN 23.03, a
// node costs as much as five of them, and a Service as much as two.
func (w *World) Size() int {
	return len(w.pods) + 5*len(w.Facts().Cluster.Nodes) + 2*len(w.services.all)
}

// Pod returns the pod of unit u, if it needs a port.
func (w *World) Pod(u nb.Unit) (pod.Pod, bool) {
	k, _ := pod.KeyOf(u)
	p := w.pods[k]
	if p == nil {
		return pod.Pod{}, false
	}
	return p.Pod, true
}

// An Annotation has the desired annotations of a pod.
type Annotation struct {
	Pod       pod.Pod // as in Kubernetes now
	Addresses pod.Addresses
}

// Written reports whether the pod has the annotations already.
func (a Annotation) Written() bool {
	return a.Pod.Annotation == a.Addresses.Annotation() && a.Pod.AnnotationUID == a.Pod.UID
}

// Values are the annotations, by key.
func (a Annotation) Values() map[string]string {
	return map[string]string{names.Annotation: a.Addresses.Annotation(), names.AnnotationUID: a.Pod.UID}
}

// Annotation returns the desired annotations of the pod of unit u. It reports false if u is no pod, or one without
// addresses.
func (w *World) Annotation(u nb.Unit) (Annotation, bool) {
	k, _ := pod.KeyOf(u)
	p := w.pods[k]
	if p == nil || p.addrs.MAC == "" {
		return Annotation{}, false
	}
	return Annotation{p.Pod, p.addrs}, true
}

// HostPorts returns the pod of unit u and its place, if the pod has hostPorts and addresses.
func (w *World) HostPorts(u nb.Unit) (hostport.Node, hostport.Pod, bool) {
	k, _ := pod.KeyOf(u)
	p := w.pods[k]
	if p == nil || len(p.HostPorts)+len(p.Problems) == 0 || p.addrs.MAC == "" {
		return hostport.Node{}, hostport.Pod{}, false
	}
	n, hp := w.hostPorts.Of(p.Pod, facts.Addrs(p.addrs.IPs))
	return n, hp, true
}
