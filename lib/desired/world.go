// Package desired holds the latest version of every object, and computes the Northbound rows from them.
//
// It does no I/O and knows no time: the same calls in the same order always give the same answers. One goroutine owns
// a World.
package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
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
	cluster topology.Cluster
	uid     string                // of the Kubernetes cluster, "" while unknown
	nodes   map[string]*node      // by name of the switch: of the topology, or with pods
	known   map[string]bool       // by name: the Nodes of Kubernetes
	pods    map[pod.Key]*podState // without those that need no port
	taken   map[pod.Key]string    // pods with the port name of a gateway's NIC, and that gateway
	addressing

	policies *policy.Index
	said     said

	reservations reservations
	hosts        map[string][]netip.Addr // by name of the switch: the addresses owned by the node
	gateways     gateways
	services
	answers   answers
	hostPorts hostPorts
	hostIPs   map[netip.Addr]map[pod.Key]bool // the pods with hostPorts, by their hostIP
}

// NewWorld returns an empty world.
func NewWorld() *World {
	return &World{
		nodes: map[string]*node{}, known: map[string]bool{}, pods: map[pod.Key]*podState{}, addressing: newAddressing(),
		policies: policy.NewIndex(), hosts: map[string][]netip.Addr{}, services: newServices(), answers: newAnswers(),
		hostPorts: hostPorts{}, hostIPs: map[netip.Addr]map[pod.Key]bool{},
		said: said{map[string]host{}, map[netip.Addr][]host{}},
	}
}

// A Problem is the reason why rows of a unit are missing. It is an error in the input, and a change of any other
// object may correct it.
type Problem struct {
	Reason  string // one word in CamelCase, for a Kubernetes Event
	Message string // one line: the error and the remedy
}

// Error implements error.
func (p *Problem) Error() string { return p.Message }

// putCluster replaces the topology. Pods of nodes with changed subnets keep the addresses in the new subnets, and
// wait for the others.
func (w *World) putCluster(c topology.Cluster) []nb.Unit {
	old, hosts := w.cluster, w.services.chassis
	places := w.places()
	w.cluster, w.services.chassis = c, allChassis(c)
	w.services.chassisOf = chassisByNode(w.services.chassis)
	touched := append(w.judgeGateways(), w.changedChassis(hosts, old)...)
	touched = append(touched, w.reserveAddresses()...)
	touched = append(touched, w.lookAround()...)
	touched = append(touched, w.changedPlaces(places)...)
	touched = append(touched, w.putAnsweringGateways()...)
	if !old.Equal(c) {
		for _, name := range topology.ChangedGateways(old, c) {
			touched = append(touched, topology.GatewayUnit(name))
		}
		touched = append(touched, w.changedHosts(old)...)
	}
	if old.Router != c.Router || !slices.Equal(old.Subnets, c.Subnets) || !slices.Equal(old.Join, c.Join) {
		// The rows of the unit have other topology only as a record, without comparison: see clusterRows.
		touched = append(touched, topology.ClusterUnit, policy.GuardUnit)
		for name := range c.Nodes {
			touched = append(touched, policy.NodeUnit(name))
		}
	}
	changed := maps.Clone(c.Nodes)
	maps.Copy(changed, old.Nodes)
	for name := range changed {
		if slices.Equal(old.Nodes[name], c.Nodes[name]) {
			continue
		}
		touched = append(touched, topology.NodeUnit(name), policy.NodeUnit(name), policy.GuardUnit, servicecidr.Unit)
		touched = append(touched, w.changeSubnets(name, c.Nodes[name])...)
	}
	return append(touched, w.putTaken()...)
}

// putNodes records nodes, and removes others. It calls lookAround once for all.
func (w *World) putNodes(nodes []*corev1.Node, gone []types.NamespacedName) (touched []nb.Unit) {
	moved := false
	put := func(n *corev1.Node, exists bool) {
		touched = append(touched, w.putNode(n.Name, exists)...)
		hosts, rezoned := w.putHost(n), w.putZone(n.Name, n.Labels[corev1.LabelTopologyZone])
		moved = moved || hosts != nil || rezoned
		touched = append(touched, hosts...)
	}
	for _, n := range nodes {
		put(n, true)
	}
	for _, name := range gone {
		put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}, false)
	}
	if moved {
		touched = append(touched, w.lookAround()...)
	}
	return touched
}

func (w *World) nodeNames() []types.NamespacedName { return clusterWide(maps.Keys(w.known)) }

func (w *World) putAssignment(a pod.Assignment) []nb.Unit {
	w.previous[a.Key] = a
	return nil
}

func (w *World) putMarks(m pod.Marks) []nb.Unit {
	w.marks[m.Node] = m.Next
	return nil
}

func (w *World) putNode(name string, exists bool) []nb.Unit {
	if w.known[name] == exists {
		return nil
	}
	if exists {
		w.known[name] = true
	} else {
		delete(w.known, name)
	}
	return []nb.Unit{topology.NodeUnit(name)}
}

func addrs(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr()
	}
	return out
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
	more, err := w.hostPortRows(p)
	if p.problem != nil {
		err = p.problem
	}
	return append(rows, more...), err
}

// putUID identifies the Kubernetes cluster by the UID of its namespace kube-system.
func (w *World) putUID(n *corev1.Namespace) []nb.Unit {
	if n.Name != metav1.NamespaceSystem || w.uid == string(n.UID) {
		return nil
	}
	w.uid = string(n.UID)
	return []nb.Unit{topology.ClusterUnit}
}

// UID identifies the Kubernetes cluster, "" while unknown.
func (w *World) UID() string { return w.uid }

// clusterRows leaves the topology recorded on the cluster router to the one-shot commands: it may be newer there.
func (w *World) clusterRows() ([]nb.Row, error) {
	if w.cluster.Router == "" {
		return nil, nil
	}
	rows := w.cluster.Rows()
	for i := range rows {
		if rows[i].ID == names.ClusterRouter {
			rows[i].OnlyNew = slices.Collect(maps.Keys(w.cluster.Registry()))
			rows[i].OnlyNew = append(rows[i].OnlyNew, names.NodePrefix, names.ChassisPrefix, names.GatewayPrefix, names.SubnetLengths)
			if w.uid != "" {
				rows[i].Model.(*nbdb.LogicalRouter).ExternalIDs[names.KubernetesUID] = w.uid
			}
		}
	}
	return rows, nil
}

func (w *World) nodeRows(name string) ([]nb.Row, error) {
	if rows := w.cluster.NodeRows(name); rows != nil {
		w.addMarks(name, rows)
		return rows, nil
	}
	if w.known[name] {
		return nil, &Problem{"NoLogicalSwitch", fmt.Sprintf("node %s has no logical switch, pods cannot run on it: run \"ovn-k8s-overlay minion-init --node-name=%s\" on it", name, name)}
	}
	return nil, nil
}

func (w *World) clusterUnits() []nb.Unit {
	if w.cluster.Router == "" {
		return nil
	}
	return []nb.Unit{topology.ClusterUnit}
}

// nodeUnits lists the units of nodes of the topology and of Kubernetes.
func (w *World) nodeUnits() []nb.Unit {
	all := set(slices.Collect(maps.Keys(w.cluster.Nodes)))
	maps.Copy(all, w.known)
	return unitsOf(all, topology.NodeUnit)
}

func (w *World) podUnits() []nb.Unit { return unitsOf(w.pods, pod.Key.Unit) }

// unitsOf lists the units of the keys of a map.
func unitsOf[K comparable, V any](m map[K]V, unit func(K) nb.Unit) []nb.Unit {
	out := make([]nb.Unit, 0, len(m))
	for k := range m {
		out = append(out, unit(k))
	}
	return out
}

// Size estimates the work of ovn-northd for each change, in logical ports of pods. With 100 nodes and OVN 23.03, a
// node costs as much as five of them, and a Service as much as two.
func (w *World) Size() int { return len(w.pods) + 5*len(w.cluster.Nodes) + 2*len(w.services.all) }

// Cluster is the latest topology.
func (w *World) Cluster() topology.Cluster { return w.cluster }

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
