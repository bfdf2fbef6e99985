package desired

import (
	"net/netip"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

func (x *Pods) putAssignment(a pod.Assignment) []nb.Unit {
	x.previous[a.Key] = a
	return nil
}

func (x *Pods) putMarks(m pod.Marks) []nb.Unit {
	x.marks[m.Node] = m.Next
	return nil
}

// rows returns the rows of a pod.
func (x *Pods) rows(k pod.Key) ([]nb.Row, error) {
	p := x.all[k]
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
	rows[0].In = append(rows[0].In, x.also.refs(k)...)
	more, err := x.also.rows(p.Pod, facts.Addrs(p.addrs.IPs))
	if p.problem != nil {
		err = p.problem
	}
	return append(rows, more...), err
}

// next are the marks where a node's pool resumes after a restart.
func (x *Pods) next(sw string) []netip.Addr {
	if n := x.nodes[sw]; n != nil {
		return n.next()
	}
	return nil
}

// Pod returns the pod of unit u, if it needs a port.
func (x *Pods) Pod(u nb.Unit) (pod.Pod, bool) {
	k, _ := pod.KeyOf(u)
	p := x.all[k]
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
func (x *Pods) Annotation(u nb.Unit) (Annotation, bool) {
	k, _ := pod.KeyOf(u)
	p := x.all[k]
	if p == nil || p.addrs.MAC == "" {
		return Annotation{}, false
	}
	return Annotation{p.Pod, p.addrs}, true
}
