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
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/service"
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

// Put records the latest version of an object and returns the units to compute again. It accepts topology.Cluster,
// pod.Assignment, pod.Marks, Silent, Chassis, Declared, Protected, Tunnels, service.Ranges, service.Selection,
// *corev1.Node, *corev1.Pod, *corev1.Namespace, *corev1.Service, *discoveryv1.EndpointSlice,
// *networkingv1.NetworkPolicy and *networkingv1.ServiceCIDR, and panics on anything else.
func (w *World) Put(obj any) []nb.Unit {
	switch o := obj.(type) {
	case topology.Cluster:
		return w.putCluster(o)
	case pod.Assignment:
		w.previous[o.Key] = o
		return nil
	case pod.Marks:
		w.marks[o.Node] = o.Next
		return nil
	case Silent:
		g := w.gateways
		g.silent = o
		return w.putGateways(g)
	case Protected:
		return w.putProtected(o)
	case Tunnels:
		return w.putTunnels(o)
	case Chassis:
		g := w.gateways
		g.chassis = o
		return w.putGateways(g)
	case Declared:
		g := w.gateways
		g.declared = o
		return w.putGateways(g)
	case *corev1.Node:
		return w.putNodes([]*corev1.Node{o}, nil)
	case *corev1.Pod:
		p := pod.New(o)
		return append(w.putPod(p), w.putLabels(o, p)...)
	case *corev1.Namespace:
		return append(w.putUID(o), w.policies.PutNamespace(o)...)
	case *networkingv1.NetworkPolicy:
		return w.putPolicy(o)
	case *corev1.Service:
		return w.putService(service.New(o))
	case service.Ranges:
		w.services.configured = o
		return w.lookAround()
	case service.Selection:
		w.services.selection = o
		return w.lookAround()
	case *networkingv1.ServiceCIDR:
		return w.putCIDRs(o.Name, service.CIDRs(o))
	case *discoveryv1.EndpointSlice:
		return w.putSlice(o)
	}
	panic(fmt.Sprintf("desired: no idea what to do with a %T", obj))
}

// Remove removes an object and returns the units to compute again. It uses only the object's name. It accepts the
// Kubernetes objects of Put.
func (w *World) Remove(obj any) []nb.Unit {
	switch o := obj.(type) {
	case *corev1.Node:
		return w.putNodes(nil, []string{o.Name})
	case *corev1.Service:
		return w.removeService(service.Key{Namespace: o.Namespace, Name: o.Name})
	case *discoveryv1.EndpointSlice:
		return w.removeSlice(sliceKey{o.Namespace, o.Name})
	case *corev1.Pod:
		k := pod.Key{Namespace: o.Namespace, Name: o.Name}
		delete(w.previous, k)
		return append(w.removePod(k), w.policies.RemovePod(k)...)
	case *corev1.Namespace:
		return w.policies.RemoveNamespace(o.Name)
	case *networkingv1.NetworkPolicy:
		return w.removePolicy(policy.Key{Namespace: o.Namespace, Name: o.Name})
	case *networkingv1.ServiceCIDR:
		return w.putCIDRs(o.Name, nil)
	}
	panic(fmt.Sprintf("desired: no idea how to remove a %T", obj))
}

// Replace records objs as all objects of the kind of example, and returns the units to compute again.
func (w *World) Replace(example any, objs []any) []nb.Unit {
	var touched []nb.Unit
	switch example.(type) {
	case *corev1.Node:
		return w.replaceNodes(objs)
	case *corev1.Pod:
		here := make(map[pod.Key]bool, len(objs))
		for _, o := range objs {
			p := o.(*corev1.Pod)
			here[pod.Key{Namespace: p.Namespace, Name: p.Name}] = true
			touched = append(touched, w.Put(p)...)
		}
		for _, k := range slices.Collect(maps.Keys(w.pods)) {
			if !here[k] {
				touched = append(touched, w.removePod(k)...)
				touched = append(touched, w.policies.RemovePod(k)...)
			}
		}
	case *corev1.Namespace:
		return w.replaceNamespaces(objs)
	case *networkingv1.NetworkPolicy:
		return w.replacePolicies(objs)
	case *corev1.Service, *discoveryv1.EndpointSlice:
		return w.replaceServices(example, objs)
	case *networkingv1.ServiceCIDR:
		return w.replaceCIDRs(objs)
	default:
		panic(fmt.Sprintf("desired: no idea how to replace all %T", example))
	}
	return touched
}

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
		touched = append(touched, topology.NodeUnit(name), policy.NodeUnit(name), policy.GuardUnit, service.RangesUnit)
		touched = append(touched, w.changeSubnets(name, c.Nodes[name])...)
	}
	return append(touched, w.putTaken()...)
}

// replaceNodes replaces all Nodes.
func (w *World) replaceNodes(objs []any) []nb.Unit {
	gone := maps.Clone(w.known)
	all := make([]*corev1.Node, len(objs))
	for i, o := range objs {
		all[i] = o.(*corev1.Node)
		delete(gone, all[i].Name)
	}
	return w.putNodes(all, slices.Collect(maps.Keys(gone)))
}

// putNodes records nodes, and removes others. It calls lookAround once for all.
func (w *World) putNodes(nodes []*corev1.Node, gone []string) (touched []nb.Unit) {
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
		put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, false)
	}
	if moved {
		touched = append(touched, w.lookAround()...)
	}
	return touched
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

// Rows returns the desired rows of unit u: none if it does not exist. It returns a *Problem if some are missing.
func (w *World) Rows(u nb.Unit) ([]nb.Row, error) {
	if u == topology.ClusterUnit {
		if w.cluster.Router == "" {
			return nil, nil
		}
		return w.clusterRows(), nil
	}
	if name, ok := topology.NodeOf(u); ok {
		return w.nodeRows(name)
	}
	if name, ok := topology.GatewayOf(u); ok {
		return w.gatewayRows(name), nil
	}
	if name, ok := topology.HostOf(u); ok {
		return w.hostRows(name)
	}
	if u == policy.GuardUnit {
		return w.guardRows(), nil
	}
	if name, ok := policy.NodeOf(u); ok {
		return w.nodePolicyRows(name), nil
	}
	if k, ok := service.KeyOf(u); ok {
		return w.serviceRows(k)
	}
	if a, ok := answer.Of(u); ok {
		return w.answerRows(a), nil
	}
	if u == service.RangesUnit {
		return w.rangesRows()
	}
	if u == service.InsideUnit {
		return w.insideRows(), nil
	}
	if node, ok := service.ReturnOf(u); ok {
		return w.returnRows(node), nil
	}
	if id, ok := chassisOf(u); ok {
		return w.chassisRows(id), nil
	}
	k, ok := pod.KeyOf(u)
	if !ok {
		return w.policyRows(u)
	}
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
func (w *World) clusterRows() []nb.Row {
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
	return rows
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

// Units lists the units with rows or a Problem.
func (w *World) Units() []nb.Unit {
	us := make([]nb.Unit, 0, 1+len(w.nodes)+len(w.pods))
	if w.cluster.Router != "" {
		us = append(us, topology.ClusterUnit)
	}
	nodes := map[string]bool{}
	for name := range w.cluster.Nodes {
		nodes[name] = true
	}
	for name := range w.known {
		nodes[name] = true
	}
	for name := range nodes {
		us = append(us, topology.NodeUnit(name))
	}
	for name := range w.said.hosts {
		us = append(us, topology.HostUnit(name))
	}
	for name := range w.cluster.Gateways {
		us = append(us, topology.GatewayUnit(name))
	}
	for k := range w.pods {
		us = append(us, k.Unit())
	}
	us = append(us, w.policyUnits()...)
	for k, s := range w.services.all {
		if s.known {
			us = append(us, k.Unit())
		}
	}
	if len(w.services.around.Ranges)+len(w.services.cidrs) > 0 {
		us = append(us, service.RangesUnit)
	}
	for id := range w.services.chassis {
		us = append(us, ChassisUnit(id))
	}
	us = append(us, w.returnUnits()...)
	return append(us, w.answerUnits()...)
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
