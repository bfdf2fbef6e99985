package pod

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// PutAssignment records the assignment of a pod in an earlier run, until Allocate.
func (x *addressing) PutAssignment(a Assignment) []nb.Unit {
	x.previous[a.Key] = a
	return nil
}

// PutMarks records where the pool of a node resumes.
func (x *addressing) PutMarks(m Marks) []nb.Unit {
	x.marks[m.Node] = m.Next
	return nil
}

// Len is the number of pods.
func (x *Index) Len() int { return len(x.all) }

// Keys are the names of the pods.
func (x *Index) Keys() iter.Seq[Key] { return maps.Keys(x.all) }

// Holder is the pod with an address, the zero Key if there is none.
func (x *Index) Holder(a netip.Addr) Key {
	for k, p := range x.all {
		if slices.ContainsFunc(p.addrs.IPs, func(ip netip.Prefix) bool { return ip.Addr() == a }) {
			return k
		}
	}
	return Key{}
}

// Compact releases the memory of removed pods: Go maps do not shrink. It changes nothing else.
func (x *Index) Compact() {
	x.all = maps.Collect(maps.All(x.all))
	for _, n := range x.nodes {
		n.pods = maps.Collect(maps.All(n.pods))
		if n.pool != nil {
			n.pool.Compact()
		}
	}
}

// Marks are the addresses at which a node's pool resumes after a restart.
func (x *Index) Marks(sw string) []netip.Addr {
	if n := x.nodes[sw]; n != nil {
		return n.next()
	}
	return nil
}

// Pod returns the pod of unit u, if it needs a port.
func (x *Index) Pod(u nb.Unit) (Pod, bool) {
	k, _ := KeyOf(u)
	p := x.all[k]
	if p == nil {
		return Pod{}, false
	}
	return p.Pod, true
}

// An Annotation has the desired annotations of a pod.
type Annotation struct {
	Pod       Pod // as in Kubernetes now
	Addresses annotation.Addresses
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
func (x *Index) Annotation(u nb.Unit) (Annotation, bool) {
	k, _ := KeyOf(u)
	p := x.all[k]
	if p == nil || p.addrs.MAC == "" {
		return Annotation{}, false
	}
	return Annotation{p.Pod, p.addrs}, true
}

// problemText is the reason why addresses are missing, "" if none are, or before Allocate.
func (p *podState) problemText() string {
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
func (x *Index) Mismatch(u nb.Unit) *feature.Problem {
	k, _ := KeyOf(u)
	if p := x.all[k]; p != nil {
		if m := p.mismatch(); m != "" {
			return &feature.Problem{Reason: "AddressMismatch", Message: m}
		}
	}
	return nil
}
