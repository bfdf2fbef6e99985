package desired

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

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

func (w *World) node(name string) *node {
	n := w.nodes[name]
	if n == nil {
		n = &node{pods: map[pod.Key]bool{}}
		w.nodes[name] = n
	}
	return n
}

// changeSubnets gives a node other subnets; none removes it from the topology. Its pods need another Settle.
func (w *World) changeSubnets(name string, subnets []netip.Prefix) (touched []nb.Unit) {
	n := w.node(name)
	former := n.pool
	if former != nil {
		w.marks[name] = former.Marks()
	}
	n.pool, n.queue = nil, nil
	if subnets != nil {
		n.pool = pod.NewPool(subnets)
		n.pool.ResumeAt(w.marks[name])
		n.pool.Resume(former)
	}
	for k := range n.pods {
		p := w.pods[k]
		p.former, p.addrs, p.queued = p.assignment(), pod.Addresses{}, 0
		w.retry(p)
		touched = append(touched, k.Unit())
	}
	w.forgetIfEmpty(name)
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

// lookPods gives nodes their subnets.
func (w *World) lookPods(c facts.Change) (touched []nb.Unit) {
	if !c.Topology {
		return nil
	}
	for name := range c.ChangedSubnets() {
		touched = append(touched, w.changeSubnets(name, c.Now.Cluster.Nodes[name])...)
	}
	return append(touched, w.putTaken()...)
}

// putTaken finds the pods with the port name of a gateway's NIC. Such a pod has no addresses, or its plugin would
// connect it in place of the NIC.
func (w *World) putTaken() (touched []nb.Unit) {
	before := w.taken
	w.taken = map[pod.Key]string{}
	for port, gateway := range w.Facts().Cluster.NICPorts() {
		ns, name, ok := names.PodOfPort(port)
		if !ok {
			continue
		}
		k := pod.Key{Namespace: ns, Name: name}
		w.taken[k] = gateway
		if p := w.pods[k]; p != nil && before[k] != gateway {
			w.release(p)
			w.retry(p)
			touched = append(touched, k.Unit())
		}
	}
	for k := range before {
		if p := w.pods[k]; p != nil && w.taken[k] == "" {
			w.retry(p)
		}
	}
	return touched
}

// release takes the addresses of a pod back. Settle gives them to waiting pods.
func (w *World) release(p *podState) {
	name := names.NodeSwitch(p.Node)
	n := w.nodes[name]
	if n.pool != nil && len(p.addrs.IPs) > 0 {
		n.pool.Release(p.Key, facts.Addrs(p.addrs.IPs))
	}
	n.dequeue(p)
	if len(n.queue) > 0 {
		w.unsettled[name] = true
	}
	p.addrs = pod.Addresses{}
}

func (n *node) dequeue(p *podState) {
	if p.queued > 0 {
		heap.Remove(&n.queue, p.queued-1)
	}
}

// retry makes Settle look for the addresses of a pod.
func (w *World) retry(p *podState) {
	name := names.NodeSwitch(p.Node)
	n := w.node(name)
	n.dequeue(p)
	if !p.fresh {
		p.fresh = true
		n.fresh = append(n.fresh, p)
	}
	w.unsettled[name] = true
}

func (w *World) putPodObject(o *corev1.Pod) []nb.Unit {
	p := pod.New(o)
	return append(w.putPod(p), w.putLabels(o, p)...)
}

func (w *World) removePodObject(name types.NamespacedName) []nb.Unit {
	k := pod.Key(name)
	delete(w.previous, k)
	return append(w.removePod(k), w.policies.RemovePod(k)...)
}

func (w *World) podNames() []types.NamespacedName { return namesOf(maps.Keys(w.pods)) }

func (w *World) putPod(p pod.Pod) []nb.Unit {
	old := w.pods[p.Key]
	if !p.NeedsPort {
		if old == nil {
			return nil
		}
		return w.removePod(p.Key)
	}
	if old != nil && old.UID == p.UID && old.Node == p.Node {
		return w.updatePod(old, p)
	}
	touched := w.removePod(p.Key)
	now := &podState{Pod: p}
	w.pods[p.Key] = now
	n := w.node(names.NodeSwitch(p.Node))
	n.pods[p.Key] = true
	now.former = n.recall(p)
	w.retry(now)
	return append(touched, append(w.hostPorts.Change(pod.Pod{}, p), p.Unit())...)
}

// updatePod records the latest version of a pod.
func (w *World) updatePod(p *podState, now pod.Pod) []nb.Unit {
	was := *p
	p.Pod = now
	touched := w.hostPorts.Change(was.Pod, now)
	changed := was.Annotation != now.Annotation || was.AnnotationUID != now.AnnotationUID || was.Static != now.Static
	reported := !slices.Equal(was.StatusIPs, now.StatusIPs)
	if p.addrs.MAC == "" && (changed || reported) {
		w.retry(p)
	}
	if changed || reported && (was.mismatch() != "" || p.mismatch() != "") {
		touched = append(touched, p.Unit())
	}
	return touched
}

func (w *World) removePod(k pod.Key) []nb.Unit {
	p := w.pods[k]
	if p == nil {
		return nil
	}
	name := names.NodeSwitch(p.Node)
	if p.Static != "" && p.addrs.MAC != "" {
		w.nodes[name].remember(p)
	}
	w.release(p)
	delete(w.nodes[name].pods, k)
	delete(w.pods, k)
	w.forgetIfEmpty(name)
	return append(w.hostPorts.Change(p.Pod, pod.Pod{}), k.Unit())
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

func (w *World) forgetIfEmpty(name string) {
	if n := w.nodes[name]; n.pool == nil && len(n.pods) == 0 {
		delete(w.nodes, name)
	}
}

// Settle assigns missing addresses to pods, as far as there are any, and returns the units to compute again. It looks
// only at nodes where an event may help.
//
// A pod keeps its addresses, family by family: only a missing family is added. If pods claim one address, the best
// claim wins, and of equal claims the older pod's. From best to weakest: the kubelet reports the address and the pod
// was assigned it; the kubelet reports it; the pod was assigned it; its annotation has it. Users can write
// annotations, so this is only a wish.
func (w *World) Settle() []nb.Unit {
	if len(w.previous) == 0 && len(w.unsettled) == 0 {
		return nil
	}
	var touched []nb.Unit
	for _, name := range slices.Sorted(maps.Keys(w.unsettled)) {
		if n := w.nodes[name]; n != nil {
			touched = append(touched, w.settleNode(name, n)...)
		}
	}
	w.previous, w.unsettled = map[pod.Key]pod.Assignment{}, map[string]bool{}
	return touched
}

func (w *World) settleNode(name string, n *node) (touched []nb.Unit) {
	fresh := w.takeFresh(n)
	before := make([]string, len(fresh)) // the problems
	for i, p := range fresh {
		before[i] = p.complaint()
		p.problem = nil
	}
	marks := n.next()
	claims := w.claim(n, fresh)
	touched = w.allocate(n)
	for i, p := range fresh {
		if n.pool == nil || w.taken[p.Key] != "" || !w.complete(n, p, claims[i]) {
			p.problem = w.lacks(n, p)
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
func (w *World) takeFresh(n *node) []*podState {
	fresh := slices.DeleteFunc(n.fresh, func(p *podState) bool {
		p.fresh = false
		return w.pods[p.Key] != p
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
func (w *World) Mismatch(u nb.Unit) *feature.Problem {
	k, _ := pod.KeyOf(u)
	if p := w.pods[k]; p != nil {
		if m := p.mismatch(); m != "" {
			return &feature.Problem{Reason: "AddressMismatch", Message: m}
		}
	}
	return nil
}
