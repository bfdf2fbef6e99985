package pod

import (
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/facts"
)

// A staticPod is a static pod after the deletion of its mirror. The pod may keep running, and get a new mirror.
type staticPod struct {
	id  string // as Pod.Static
	had Assignment
}

const (
	// maxStatic bounds node.static.
	maxStatic = 64
	// maxGone bounds Index.gone: Nodes of an autoscaler never return.
	maxGone = 1024
)

// remember keeps the assignment of a static pod for its next mirror. The address is not reserved: it is reused like
// any other.
func (n *node) remember(p *podState) {
	n.static = append(n.static, staticPod{p.Static, *p.assignment()})
	if len(n.static) > maxStatic {
		n.static = slices.Delete(n.static, 0, 1)
	}
}

// recall returns the assignment of an earlier mirror of the pod, nil if there was none.
func (n *node) recall(p Pod) *Assignment {
	i := slices.IndexFunc(n.static, func(s staticPod) bool { return p.Static != "" && s.id == p.Static && s.had.Key == p.Key })
	if i < 0 {
		return nil
	}
	had := n.static[i].had
	n.static = slices.Delete(n.static, i, i+1)
	return &had
}

// reportsAnother reports whether a static pod runs with another, free address than assigned. The kubelet's report
// about a new mirror may be the only trace of the running pod.
func (n *node) reportsAnother(p *podState) bool {
	if p.Static == "" || p.addrs.MAC == "" || n.pool == nil {
		return false
	}
	assigned := facts.Addrs(p.addrs.IPs)
	return slices.ContainsFunc(p.StatusIPs, func(ip netip.Addr) bool { return !slices.Contains(assigned, ip) && n.pool.IsFree(ip) })
}

// isEmpty reports whether a node has no pods and is not in the topology.
func (n *node) isEmpty() bool { return n.pool == nil && len(n.pods) == 0 }

// forgetIfEmpty removes an empty node. One with static pods is kept until maxGone others were: a Node deleted by mistake is
// registered again, while its static pods keep running.
func (x *Index) forgetIfEmpty(name string) {
	n := x.nodes[name]
	if !n.isEmpty() {
		return
	}
	if len(n.static) == 0 {
		delete(x.nodes, name)
		return
	}
	x.gone = slices.DeleteFunc(x.gone, func(other string) bool { return other == name || x.nodes[other] == nil || !x.nodes[other].isEmpty() })
	if x.gone = append(x.gone, name); len(x.gone) > maxGone {
		delete(x.nodes, x.gone[0])
		x.gone = slices.Delete(x.gone, 0, 1)
	}
}
