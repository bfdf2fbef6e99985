package pod

import (
	"container/heap"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// An Index has the pods with a port, and allocates their addresses.
type Index struct {
	facts             *facts.Index
	also              Additions
	all               map[Key]*podState
	nodes             nodes
	gone              []string       // of nodes: those only with static pods, the latest last
	reservedPortNames map[Key]string // pods with the port name of a gateway's NIC, and that gateway
	addressing
}

// Additions are the parts of units of pods that other features add.
type Additions struct {
	// Changed returns the units affected by a change of a pod's hostPorts. Each is zero if there is no such pod.
	Changed func(old, now Pod) []nb.Unit
	// Groups are the port groups of a pod, Rows its rows for hostPorts.
	Groups func(Key) []nb.Ref
	Rows   func(p Pod, addrs []netip.Addr) ([]nb.Row, error)
}

// NewIndex returns an index without pods.
func NewIndex(x *facts.Index, a Additions) *Index {
	return &Index{x, a, map[Key]*podState{}, nodes{}, nil, map[Key]string{}, newAddressing()}
}

// Units implements feature.Feature.
func (x *Index) Units() []feature.Units {
	return []feature.Units{feature.Named(feature.Pods, UnitPrefix, KeyOf, x.rows, func() []nb.Unit { return feature.UnitsOf(x.all, Key.Unit) })}
}

// Kinds implements feature.Reader.
func (x *Index) Kinds() []kind.Kind {
	return []kind.Kind{
		kind.OneByOne(
			func(o *corev1.Pod) []nb.Unit { return x.Put(New(o)) },
			func(name types.NamespacedName) []nb.Unit { return x.Remove(Key(name)) },
			func() []types.NamespacedName { return kind.Names(x.Keys()) }),
		kind.Input(x.PutAssignment),
		kind.Input(x.PutMarks),
	}
}

// addressing is the state of Allocate.
type addressing struct {
	previous map[Key]Assignment      // of an earlier run, until Allocate
	marks    map[string][]netip.Addr // by name of the switch: where a new pool resumes
	pending  map[string]bool         // by name of the switch: Allocate has work there
}

func newAddressing() addressing {
	return addressing{map[Key]Assignment{}, map[string][]netip.Addr{}, map[string]bool{}}
}

// A node is a switch and its pods.
type node struct {
	pool   *Pool // nil: the topology has no such node
	pods   map[Key]bool
	fresh  []*podState // changed pods without addresses, until Allocate
	queue  podQueue    // pods waiting because a subnet was full
	static []staticPod // static pods without a mirror, the latest last
	shared shared
}

// shared are values with one copy for all pods of a node.
type shared struct {
	node     string
	gateways []netip.Addr // of the latest pod
}

type podState struct {
	Pod
	addrs        annotation.Addresses // MAC "" while it has none
	former       *Assignment          // before the node's subnets changed, or of an earlier mirror
	problem      error                // the reason of missing addresses
	fresh        bool                 // p is in node.fresh
	anyInterface bool                 // as Assignment.AnyInterface
	queued       int                  // 1 + p's index in node.queue; 0: not there
}

// nodes are the nodes by name of the switch: those of the topology, with pods, or gone.
type nodes map[string]*node

func (x nodes) of(name string) *node {
	n := x[name]
	if n == nil {
		n = &node{pods: map[Key]bool{}}
		x[name] = n
	}
	return n
}

// changeSubnets gives a node other subnets; none removes it from the topology. Its pods need another Allocate.
func (x *Index) changeSubnets(name string, subnets []netip.Prefix) (touched []nb.Unit) {
	n := x.nodes.of(name)
	former := n.pool
	if former != nil {
		x.marks[name] = former.Marks()
	}
	n.pool, n.queue = nil, nil
	if subnets != nil {
		n.pool = NewPool(subnets)
		n.pool.ResumeAt(x.marks[name])
		n.pool.Resume(former)
	}
	for k := range n.pods {
		p := x.all[k]
		p.former, p.addrs, p.queued = p.assignment(), annotation.Addresses{}, 0
		x.retry(p)
		touched = append(touched, k.Unit())
	}
	x.forgetIfEmpty(name)
	return touched
}

// assignment is the present assignment of the pod, with the previous addresses of families that its node lacks now.
func (p *podState) assignment() *Assignment {
	if p.addrs.MAC == "" {
		return p.former
	}
	a := &Assignment{Key: p.Key, UID: p.UID, Static: p.Static, MAC: p.addrs.MAC, IPs: facts.Addrs(p.addrs.IPs)}
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

// FactsChanged gives nodes their subnets.
func (x *Index) FactsChanged(c facts.Change) (touched []nb.Unit) {
	if !c.Topology {
		return nil
	}
	for name := range c.ChangedSubnets() {
		touched = append(touched, x.changeSubnets(name, c.Now.Cluster.Nodes[name])...)
	}
	return append(touched, x.updateReservedPortNames()...)
}

// updateReservedPortNames finds the pods with the port name of a gateway's NIC. Such a pod has no addresses, or its plugin would
// connect it in place of the NIC.
func (x *Index) updateReservedPortNames() (touched []nb.Unit) {
	before := x.reservedPortNames
	x.reservedPortNames = map[Key]string{}
	for port, gateway := range x.facts.Now().Cluster.Gateways.NICPorts() {
		ns, name, ok := names.PodOfPort(port)
		if !ok {
			continue
		}
		k := Key{Namespace: ns, Name: name}
		x.reservedPortNames[k] = gateway
		if p := x.all[k]; p != nil && before[k] != gateway {
			x.release(p)
			x.retry(p)
			touched = append(touched, k.Unit())
		}
	}
	for k := range before {
		if p := x.all[k]; p != nil && x.reservedPortNames[k] == "" {
			x.retry(p)
		}
	}
	return touched
}

// release takes the addresses of a pod back. Allocate gives them to waiting pods.
func (x *Index) release(p *podState) {
	name := names.NodeSwitch(p.Node)
	n := x.nodes[name]
	if n.pool != nil && len(p.addrs.IPs) > 0 {
		n.pool.Release(p.Key, facts.Addrs(p.addrs.IPs))
	}
	n.dequeue(p)
	if len(n.queue) > 0 {
		x.pending[name] = true
	}
	p.addrs = annotation.Addresses{}
}

func (n *node) dequeue(p *podState) {
	if p.queued > 0 {
		heap.Remove(&n.queue, p.queued-1)
	}
}

// retry makes Allocate look for the addresses of a pod.
func (x *Index) retry(p *podState) {
	name := names.NodeSwitch(p.Node)
	n := x.nodes.of(name)
	n.dequeue(p)
	if !p.fresh {
		p.fresh = true
		n.fresh = append(n.fresh, p)
	}
	x.pending[name] = true
}

// Put records the latest version of a pod, and returns the units to compute again.
func (x *Index) Put(p Pod) []nb.Unit {
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
	n := x.nodes.of(names.NodeSwitch(p.Node))
	if n.shared.node != p.Node {
		n.shared.node = p.Node
	}
	p.Node = n.shared.node
	now := &podState{Pod: p}
	now.anyInterface = len(p.StatusIPs) > 0 // it runs already: if the database was emptied, perhaps since an older release
	x.all[p.Key] = now
	n.pods[p.Key] = true
	now.former = n.recall(p)
	x.retry(now)
	return append(touched, append(x.also.Changed(Pod{}, p), p.Unit())...)
}

// update records the latest version of a pod.
func (x *Index) update(p *podState, now Pod) []nb.Unit {
	was := *p
	now.Key, now.UID, now.Node = was.Key, was.UID, was.Node // the same text, which maps hold
	if now.AnnotationUID == was.UID {
		now.AnnotationUID = was.UID
	}
	p.Pod = now
	touched := x.also.Changed(was.Pod, now)
	changed := was.Annotation != now.Annotation || was.AnnotationUID != now.AnnotationUID || was.Static != now.Static
	reported := !slices.Equal(was.StatusIPs, now.StatusIPs)
	if reported && x.nodes[names.NodeSwitch(p.Node)].reportsAnother(p) {
		p.former = p.assignment() // to keep if Allocate gives another pod the reported address
		x.release(p)
	}
	if p.addrs.MAC == "" && (changed || reported) {
		x.retry(p)
	}
	if changed || reported && (was.mismatch() != "" || p.mismatch() != "") {
		touched = append(touched, p.Unit())
	}
	return touched
}

// Remove removes a pod, and returns the units to compute again.
func (x *Index) Remove(k Key) []nb.Unit {
	delete(x.previous, k)
	return x.remove(k)
}

func (x *Index) remove(k Key) []nb.Unit {
	p := x.all[k]
	if p == nil {
		return nil
	}
	name := names.NodeSwitch(p.Node)
	if p.Static != "" && p.assignment() != nil {
		x.nodes[name].remember(p)
	}
	x.release(p)
	delete(x.nodes[name].pods, k)
	delete(x.all, k)
	x.forgetIfEmpty(name)
	return append(x.also.Changed(p.Pod, Pod{}), k.Unit())
}

// rows returns the rows of a pod.
func (x *Index) rows(k Key) ([]nb.Row, error) {
	p := x.all[k]
	if p == nil {
		return nil, nil
	}
	if p.addrs.MAC == "" {
		return nil, p.problem
	}
	rows := Rows(p.Pod, p.addrs)
	port := rows[0].Model.(*nbdb.LogicalSwitchPort)
	if p.mismatch() != "" { // for commands: they must not remove addresses in use
		port.ExternalIDs[names.RunningIPs] = ipnet.Join(p.StatusIPs)
	}
	if p.anyInterface {
		port.Options = nil
	}
	rows[0].In = append(rows[0].In, x.also.Groups(k)...)
	more, err := x.also.Rows(p.Pod, facts.Addrs(p.addrs.IPs))
	if p.problem != nil {
		err = p.problem
	}
	return append(rows, more...), err
}

// Rows returns the logical port of p, with the addresses a, on the switch of its node.
// Port security drops packets from other addresses.
func Rows(p Pod, a annotation.Addresses) []nb.Row {
	name := names.PodPort(p.Namespace, p.Name)
	ips := make([]netip.Addr, len(a.IPs))
	for i, ip := range a.IPs {
		ips[i] = ip.Addr()
	}
	addresses := a.MAC + " " + strings.ReplaceAll(ipnet.Join(ips), ",", " ")
	port := &nbdb.LogicalSwitchPort{
		Name:         name,
		Addresses:    []string{addresses},
		PortSecurity: []string{addresses},
		Options:      map[string]string{names.IfaceIDVer: p.UID},
		ExternalIDs:  map[string]string{names.Namespace: p.Namespace, names.Pod: "true", names.PodUID: p.UID},
	}
	if p.Static != "" { // its interface keeps the UID of an earlier mirror
		port.Options = nil
		port.ExternalIDs[names.StaticPod] = p.Static
	}
	return []nb.Row{{
		Table: nbdb.LogicalSwitchPortTable,
		ID:    name,
		Model: port,
		In:    []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: names.NodeSwitch(p.Node), Column: "ports"}},
	}}
}
