package desired

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Pods are the pods with a port, and allocate their addresses.
type Pods struct {
	facts *facts.Index
	also  also
	all   map[pod.Key]*podState
	nodes map[string]*node   // by name of the switch: of the topology, or with pods
	taken map[pod.Key]string // pods with the port name of a gateway's NIC, and that gateway
	addressing
}

// also are other features with a part in the pods' units.
type also struct {
	// changed returns the units affected by a change of a pod's hostPorts. Each is zero if there is no such pod.
	changed func(old, now pod.Pod) []nb.Unit
	// refs are the groups of a pod, rows its rows for hostPorts.
	refs func(pod.Key) []nb.Ref
	rows func(p pod.Pod, addrs []netip.Addr) ([]nb.Row, error)
}

func newPods(x *facts.Index, a also) *Pods {
	return &Pods{x, a, map[pod.Key]*podState{}, map[string]*node{}, map[pod.Key]string{}, newAddressing()}
}

// Units implements feature.Feature.
func (x *Pods) Units() []feature.Units {
	return []feature.Units{feature.Named(pod.UnitPrefix, pod.KeyOf, x.rows, func() []nb.Unit { return feature.UnitsOf(x.all, pod.Key.Unit) })}
}

// addressing is the state of Settle.
type addressing struct {
	previous  map[pod.Key]pod.Assignment // of an earlier run, until Settle
	marks     map[string][]netip.Addr    // by name of the switch: where a new pool resumes
	unsettled map[string]bool            // by name of the switch: Settle has work there
}

func newAddressing() addressing {
	return addressing{map[pod.Key]pod.Assignment{}, map[string][]netip.Addr{}, map[string]bool{}}
}

// A node is a switch and its pods.
type node struct {
	pool   *pod.Pool // nil: the topology has no such node
	pods   map[pod.Key]bool
	fresh  []*podState // changed pods without addresses, until Settle
	queue  podQueue    // pods waiting because a subnet was full
	static []staticPod // static pods without a mirror, the latest last
}

type podState struct {
	pod.Pod
	addrs   pod.Addresses   // MAC "" while it has none
	former  *pod.Assignment // before the node's subnets changed, or of an earlier mirror
	problem error           // the reason of missing addresses
	fresh   bool            // p is in node.fresh
	queued  int             // 1 + p's index in node.queue; 0: not there
}

// A podQueue is a heap (container/heap) of pods, the oldest first.
type podQueue []*podState

// Len implements heap.Interface.
func (q podQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q podQueue) Less(i, j int) bool { return compareAge(q[i], q[j]) < 0 }

// Swap implements heap.Interface.
func (q podQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queued, q[j].queued = i+1, j+1
}

// Push implements heap.Interface.
func (q *podQueue) Push(x any) {
	p := x.(*podState)
	*q = append(*q, p)
	p.queued = len(*q)
}

// Pop implements heap.Interface.
func (q *podQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	p.queued = 0
	return p
}

func compareAge(a, b *podState) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// A staticPod is a static pod after the deletion of its mirror. The pod may keep running, and get a new mirror.
type staticPod struct {
	id  string // as pod.Pod.Static
	had pod.Assignment
}

// maxStatic bounds node.static.
const maxStatic = 64

func (x *Pods) node(name string) *node {
	n := x.nodes[name]
	if n == nil {
		n = &node{pods: map[pod.Key]bool{}}
		x.nodes[name] = n
	}
	return n
}

// changeSubnets gives a node other subnets; none removes it from the topology. Its pods need another Settle.
func (x *Pods) changeSubnets(name string, subnets []netip.Prefix) (touched []nb.Unit) {
	n := x.node(name)
	former := n.pool
	if former != nil {
		x.marks[name] = former.Marks()
	}
	n.pool, n.queue = nil, nil
	if subnets != nil {
		n.pool = pod.NewPool(subnets)
		n.pool.ResumeAt(x.marks[name])
		n.pool.Resume(former)
	}
	for k := range n.pods {
		p := x.all[k]
		p.former, p.addrs, p.queued = p.assignment(), pod.Addresses{}, 0
		x.retry(p)
		touched = append(touched, k.Unit())
	}
	x.forgetIfEmpty(name)
	return touched
}

// assignment is the present assignment of the pod, with the previous addresses of families that its node lacks now.
func (p *podState) assignment() *pod.Assignment {
	if p.addrs.MAC == "" {
		return p.former
	}
	a := &pod.Assignment{Key: p.Key, UID: p.UID, Static: p.Static, MAC: p.addrs.MAC, IPs: facts.Addrs(p.addrs.IPs)}
	if p.former != nil {
		for _, ip := range p.former.IPs {
			if !hasFamily(a.IPs, ip) {
				a.IPs = append(a.IPs, ip)
			}
		}
	}
	return a
}

func hasFamily(ips []netip.Addr, of netip.Addr) bool {
	return slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ipnet.SameFamily(ip, of) })
}

// Look gives nodes their subnets.
func (x *Pods) Look(c facts.Change) (touched []nb.Unit) {
	if !c.Topology {
		return nil
	}
	for name := range c.ChangedSubnets() {
		touched = append(touched, x.changeSubnets(name, c.Now.Cluster.Nodes[name])...)
	}
	return append(touched, x.putTaken()...)
}

// putTaken finds the pods with the port name of a gateway's NIC. Such a pod has no addresses, or its plugin would
// connect it in place of the NIC.
func (x *Pods) putTaken() (touched []nb.Unit) {
	before := x.taken
	x.taken = map[pod.Key]string{}
	for port, gateway := range x.facts.Now().Cluster.NICPorts() {
		ns, name, ok := names.PodOfPort(port)
		if !ok {
			continue
		}
		k := pod.Key{Namespace: ns, Name: name}
		x.taken[k] = gateway
		if p := x.all[k]; p != nil && before[k] != gateway {
			x.release(p)
			x.retry(p)
			touched = append(touched, k.Unit())
		}
	}
	for k := range before {
		if p := x.all[k]; p != nil && x.taken[k] == "" {
			x.retry(p)
		}
	}
	return touched
}

// release takes the addresses of a pod back. Settle gives them to waiting pods.
func (x *Pods) release(p *podState) {
	name := names.NodeSwitch(p.Node)
	n := x.nodes[name]
	if n.pool != nil && len(p.addrs.IPs) > 0 {
		n.pool.Release(p.Key, facts.Addrs(p.addrs.IPs))
	}
	n.dequeue(p)
	if len(n.queue) > 0 {
		x.unsettled[name] = true
	}
	p.addrs = pod.Addresses{}
}

func (n *node) dequeue(p *podState) {
	if p.queued > 0 {
		heap.Remove(&n.queue, p.queued-1)
	}
}

// retry makes Settle look for the addresses of a pod.
func (x *Pods) retry(p *podState) {
	name := names.NodeSwitch(p.Node)
	n := x.node(name)
	n.dequeue(p)
	if !p.fresh {
		p.fresh = true
		n.fresh = append(n.fresh, p)
	}
	x.unsettled[name] = true
}

func (x *Pods) put(p pod.Pod) []nb.Unit {
	old := x.all[p.Key]
	if !p.NeedsPort {
		if old == nil {
			return nil
		}
		return x.remove(p.Key)
	}
	if old != nil && old.UID == p.UID && old.Node == p.Node {
		return x.update(old, p)
	}
	touched := x.remove(p.Key)
	now := &podState{Pod: p}
	x.all[p.Key] = now
	n := x.node(names.NodeSwitch(p.Node))
	n.pods[p.Key] = true
	now.former = n.recall(p)
	x.retry(now)
	return append(touched, append(x.also.changed(pod.Pod{}, p), p.Unit())...)
}

// update records the latest version of a pod.
func (x *Pods) update(p *podState, now pod.Pod) []nb.Unit {
	was := *p
	p.Pod = now
	touched := x.also.changed(was.Pod, now)
	changed := was.Annotation != now.Annotation || was.AnnotationUID != now.AnnotationUID || was.Static != now.Static
	reported := !slices.Equal(was.StatusIPs, now.StatusIPs)
	if p.addrs.MAC == "" && (changed || reported) {
		x.retry(p)
	}
	if changed || reported && (was.mismatch() != "" || p.mismatch() != "") {
		touched = append(touched, p.Unit())
	}
	return touched
}

func (x *Pods) remove(k pod.Key) []nb.Unit {
	p := x.all[k]
	if p == nil {
		return nil
	}
	name := names.NodeSwitch(p.Node)
	if p.Static != "" && p.addrs.MAC != "" {
		x.nodes[name].remember(p)
	}
	x.release(p)
	delete(x.nodes[name].pods, k)
	delete(x.all, k)
	x.forgetIfEmpty(name)
	return append(x.also.changed(p.Pod, pod.Pod{}), k.Unit())
}

// remember keeps the assignment of a static pod for its next mirror. The address is not reserved: it is reused like
// any other.
func (n *node) remember(p *podState) {
	n.static = append(n.static, staticPod{p.Static, *p.assignment()})
	if len(n.static) > maxStatic {
		n.static = slices.Delete(n.static, 0, 1)
	}
}

// recall returns the assignment of an earlier mirror of the pod, nil if there was none.
func (n *node) recall(p pod.Pod) *pod.Assignment {
	i := slices.IndexFunc(n.static, func(s staticPod) bool { return p.Static != "" && s.id == p.Static && s.had.Key == p.Key })
	if i < 0 {
		return nil
	}
	had := n.static[i].had
	n.static = slices.Delete(n.static, i, i+1)
	return &had
}

func (x *Pods) forgetIfEmpty(name string) {
	if n := x.nodes[name]; n.pool == nil && len(n.pods) == 0 {
		delete(x.nodes, name)
	}
}

// Settle assigns missing addresses to pods, as far as there are any, and returns the units to compute again. It looks
// only at nodes where an event may help.
//
// A pod keeps its addresses, family by family: only a missing family is added. If pods claim one address, the best
// claim wins, and of equal claims the older pod's. From best to weakest: the kubelet reports the address and the pod
// was assigned it; the kubelet reports it; the pod was assigned it; its annotation has it. Users can write
// annotations, so this is only a wish.
func (x *Pods) Settle() []nb.Unit {
	if len(x.previous) == 0 && len(x.unsettled) == 0 {
		return nil
	}
	var touched []nb.Unit
	for _, name := range slices.Sorted(maps.Keys(x.unsettled)) {
		if n := x.nodes[name]; n != nil {
			touched = append(touched, x.settleNode(name, n)...)
		}
	}
	x.previous, x.unsettled = map[pod.Key]pod.Assignment{}, map[string]bool{}
	return touched
}

func (x *Pods) settleNode(name string, n *node) (touched []nb.Unit) {
	fresh := x.takeFresh(n)
	before := make([]string, len(fresh)) // the problems
	for i, p := range fresh {
		before[i] = p.complaint()
		p.problem = nil
	}
	marks := n.next()
	claims := x.claim(n, fresh)
	touched = x.allocate(n)
	for i, p := range fresh {
		if n.pool == nil || x.taken[p.Key] != "" || !x.complete(n, p, claims[i]) {
			p.problem = x.lacks(n, p)
		}
		if p.addrs.MAC != "" || p.complaint() != before[i] {
			touched = append(touched, p.Unit())
		}
	}
	if !slices.Equal(marks, n.next()) {
		touched = append(touched, topology.NodeUnit(name))
	}
	return touched
}

// takeFresh empties n.fresh and returns its pods that still exist, the oldest first.
func (x *Pods) takeFresh(n *node) []*podState {
	fresh := slices.DeleteFunc(n.fresh, func(p *podState) bool {
		p.fresh = false
		return x.all[p.Key] != p
	})
	n.fresh = nil
	slices.SortFunc(fresh, compareAge)
	return fresh
}

// complaint is the reason why addresses are missing, "" if none are, or before Settle.
func (p *podState) complaint() string {
	if p.problem == nil {
		return ""
	}
	return p.problem.Error()
}

// mismatch describes the difference between the addresses of a running pod and its assignment, "" if there is none.
func (p *podState) mismatch() string {
	if p.addrs.MAC == "" || len(p.StatusIPs) == 0 {
		return ""
	}
	assigned := facts.Addrs(p.addrs.IPs)
	wrong := slices.DeleteFunc(slices.Clone(p.StatusIPs), func(ip netip.Addr) bool { return slices.Contains(assigned, ip) })
	missing := slices.DeleteFunc(assigned, func(ip netip.Addr) bool { return slices.Contains(p.StatusIPs, ip) })
	switch {
	case len(wrong) == 0 && len(missing) == 0:
		return ""
	case len(missing) == 0:
		return fmt.Sprintf("pod %s runs with address %s, which is not in the subnets of node %s: its packets are dropped; delete the pod to recreate it without", p.Key, ipnet.Join(wrong), p.Node)
	case len(wrong) == 0:
		return fmt.Sprintf("pod %s runs without address %s, which it was assigned after its start: delete the pod to recreate it with all addresses", p.Key, ipnet.Join(missing))
	}
	return fmt.Sprintf("pod %s runs with address %s, but is assigned %s: its packets are dropped; delete the pod to recreate it", p.Key, ipnet.Join(wrong), ipnet.Join(missing))
}

// Mismatch returns a Problem if the pod of unit u runs with other addresses than assigned, else nil. It cannot change
// them while it runs.
func (x *Pods) Mismatch(u nb.Unit) *feature.Problem {
	k, _ := pod.KeyOf(u)
	if p := x.all[k]; p != nil {
		if m := p.mismatch(); m != "" {
			return &feature.Problem{Reason: "AddressMismatch", Message: m}
		}
	}
	return nil
}
