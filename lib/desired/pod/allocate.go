package pod

import (
	"container/heap"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Allocate assigns missing addresses to pods, as far as there are any, and returns the units to compute again. It looks
// only at nodes where an event may help.
//
// A pod keeps its addresses, family by family: only a missing family is added. If several pods have one address, it
// goes to the one with the best evidence, and with equal evidence to the oldest. From best to weakest: the kubelet
// reports the address and the pod was assigned it; the kubelet reports it; the pod was assigned it; its annotation has
// it. Users can write annotations, so this is only a wish.
func (x *Index) Allocate() []nb.Unit {
	if len(x.previous) == 0 && len(x.pending) == 0 {
		return nil
	}
	var touched []nb.Unit
	for _, name := range slices.Sorted(maps.Keys(x.pending)) {
		if n := x.nodes[name]; n != nil {
			touched = append(touched, x.allocateNode(name, n)...)
		}
	}
	x.previous, x.pending = map[Key]Assignment{}, map[string]bool{}
	return touched
}

func (x *Index) allocateNode(name string, n *node) (touched []nb.Unit) {
	fresh := x.takeFresh(n)
	before := make([]string, len(fresh)) // the problems
	for i, p := range fresh {
		before[i] = p.problemText()
		p.problem = nil
	}
	marks := n.next()
	kept := x.reserve(n, fresh)
	touched = x.allocateWaiting(n)
	for i, p := range fresh {
		if n.pool == nil || x.reservedPortNames[p.Key] != "" || !x.allocatePod(n, p, kept[i]) {
			p.problem = x.whyMissing(n, p)
		}
		if p.addrs.MAC != "" || p.problemText() != before[i] {
			touched = append(touched, p.Unit())
		}
	}
	if !slices.Equal(marks, n.next()) {
		touched = append(touched, topology.NodeUnit(name))
	}
	return touched
}

// takeFresh empties n.fresh and returns its pods that still exist, the oldest first.
func (x *Index) takeFresh(n *node) []*podState {
	fresh := slices.DeleteFunc(n.fresh, func(p *podState) bool {
		p.fresh = false
		return x.all[p.Key] != p
	})
	n.fresh = nil
	slices.SortFunc(fresh, compareAge)
	return fresh
}

// reserved are the addresses that a pod keeps.
type reserved struct {
	ips  []netip.Addr
	firm int // the number of leading ips that are no wish
}

// reserve reserves the addresses that pods have already.
func (x *Index) reserve(n *node, pods []*podState) []reserved {
	got := make([]reserved, len(pods))
	if n.pool == nil {
		return got
	}
	families := 0
	if len(pods) > 0 {
		families = len(x.facts.Now().Cluster.Nodes[names.NodeSwitch(pods[0].Node)])
	}
	reserve := func(source func(*podState) []netip.Addr) {
		for i, p := range pods {
			if len(got[i].ips) == families || x.reservedPortNames[p.Key] != "" {
				continue
			}
			for _, ip := range source(p) {
				if !hasFamily(got[i].ips, ip) && n.pool.Reserve(p.Key, ip) {
					got[i].ips = append(got[i].ips, ip)
				}
			}
		}
	}
	reserve(func(p *podState) []netip.Addr { return intersect(p.StatusIPs, x.assigned(p)) })
	reserve(func(p *podState) []netip.Addr { return p.StatusIPs })
	reserve(x.assigned)
	for i := range got {
		got[i].firm = len(got[i].ips)
		n.pool.Pass(got[i].ips)
	}
	reserve(n.annotated)
	return got
}

// allocatePod adds the missing addresses of a pod. Without a free one it reports false and queues the pod. Until it
// succeeds, a running pod keeps its reserved addresses.
func (x *Index) allocatePod(n *node, p *podState, has reserved) bool {
	if ips, _ := n.pool.Allocate(p.Key, has.ips); ips != nil {
		x.assign(n, p, ips)
		return true
	}
	heap.Push(&n.queue, p)
	if has.firm > 0 {
		x.assign(n, p, has.ips)
	} else {
		n.pool.Release(p.Key, has.ips)
	}
	return false
}

func intersect(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(ip netip.Addr) bool { return !slices.Contains(b, ip) })
}

// assigned are the previous addresses of the pod, assigned in this run or an earlier one.
func (x *addressing) assigned(p *podState) []netip.Addr {
	var ips []netip.Addr
	if p.former != nil {
		ips = p.former.IPs
	}
	if a, ok := x.previous[p.Key]; ok && a.Of(p.Pod) {
		ips = slices.Concat(ips, a.IPs)
	}
	return ips
}

// annotated are the addresses in the pod's annotation.
func (n *node) annotated(p *podState) []netip.Addr {
	if p.Annotation == "" {
		return nil
	}
	wish, err := annotation.Parse(p.Annotation)
	if err != nil {
		return nil
	}
	if p.AnnotationUID == p.UID { // as written by the watcher
		n.pool.Pass(facts.Addrs(wish.IPs))
	}
	return facts.Addrs(wish.IPs)
}

// allocateWaiting gives free addresses to pods in the queue.
func (x *Index) allocateWaiting(n *node) (touched []nb.Unit) {
	for len(n.queue) > 0 {
		p := n.queue[0]
		ips, _ := n.pool.Allocate(p.Key, facts.Addrs(p.addrs.IPs))
		if ips == nil {
			break
		}
		heap.Pop(&n.queue)
		x.assign(n, p, ips)
		p.problem = nil
		touched = append(touched, p.Unit())
	}
	return touched
}

// whyMissing returns the reason why addresses of a pod are missing.
func (x *Index) whyMissing(n *node, p *podState) error {
	if gateway := x.reservedPortNames[p.Key]; gateway != "" {
		return &feature.Problem{Reason: "NameTaken", Message: fmt.Sprintf("the logical port of pod %s would be %s, which is that of the NIC of gateway %s: give the pod or its namespace another name",
			p.Key, names.PodPort(p.Namespace, p.Name), gateway)}
	}
	if n.pool == nil && x.facts.Now().Cluster.NumberedBy != "" {
		return nil // that program gives the node a subnet in a moment, or tells why not in an Event about the Node
	}
	if n.pool == nil {
		return &feature.Problem{Reason: "NoLogicalSwitch", Message: fmt.Sprintf("node %s has no logical switch: run \"ovn-k8s-overlay minion-init --node-name=%s\" on it", p.Node, p.Node)}
	}
	full, _ := n.pool.Full()
	return &feature.Problem{Reason: "SubnetFull", Message: fmt.Sprintf("subnet %s of node %s has no free address: all %d are in use", full, p.Node, ipnet.Hosts(full)-(FirstHost-1))}
}

// assign records the addresses of a pod, with its MAC and gateways.
func (x *Index) assign(n *node, p *podState, ips []netip.Addr) {
	subnets := x.facts.Now().Cluster.Nodes[names.NodeSwitch(p.Node)]
	gateways := topology.PodGateways(subnets)
	sorted := slices.SortedFunc(slices.Values(ips), func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if a, ok := x.previous[p.Key]; ok && a.Of(p.Pod) {
		p.anyInterface = a.AnyInterface
	}
	p.addrs = annotation.Addresses{MAC: n.pool.MAC(x.formerMAC(n, p), sorted)}
	for _, ip := range sorted {
		i := slices.IndexFunc(subnets, func(s netip.Prefix) bool { return s.Contains(ip) })
		p.addrs.IPs = append(p.addrs.IPs, netip.PrefixFrom(ip, subnets[i].Bits()))
		p.addrs.Gateways = append(p.addrs.Gateways, gateways[i])
	}
	if !slices.Equal(n.shared.gateways, p.addrs.Gateways) {
		n.shared.gateways = p.addrs.Gateways
	}
	p.addrs.Gateways = n.shared.gateways
}

// formerMAC is the present MAC of the pod's interface, "" if it is unknown.
func (x *Index) formerMAC(n *node, p *podState) string {
	if p.addrs.MAC != "" {
		return p.addrs.MAC
	}
	if p.former != nil {
		return p.former.MAC
	}
	if a, ok := x.previous[p.Key]; ok && a.Of(p.Pod) {
		return a.MAC
	}
	if p.Annotation == "" || p.AnnotationUID != p.UID {
		return ""
	}
	a, err := annotation.Parse(p.Annotation)
	if err != nil || strings.HasPrefix(a.MAC, "00:00:00:") { // a router's
		return ""
	}
	for k := range n.pods {
		if o := x.all[k]; o != p && strings.EqualFold(o.addrs.MAC, a.MAC) {
			return ""
		}
	}
	return a.MAC
}

// next are the marks where the node's pool resumes after a restart.
func (n *node) next() []netip.Addr {
	if n.pool == nil {
		return nil
	}
	return n.pool.Marks()
}
