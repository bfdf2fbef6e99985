package nodesubnet

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
)

// A Node is a node as the allocator needs it.
type Node struct {
	Name    string
	Created int64 // creationTimestamp, in seconds since 1970; the older node has precedence
	// Wish are the subnets in the node's annotations; see ParseAnnotations. Invalid is the reason why they cannot be read.
	Wish    []netip.Prefix
	Invalid error
}

// equal compares everything but the errors' types.
func (n Node) equal(o Node) bool {
	return n.Name == o.Name && n.Created == o.Created && slices.Equal(n.Wish, o.Wish) && fmt.Sprint(n.Invalid) == fmt.Sprint(o.Invalid)
}

// An Allocator gives subnets to nodes: one of each family of its ranges, from the first range with room. A node keeps its
// subnets while it exists. Those of a removed node are kept for the next one of its name while there are others.
type Allocator struct {
	pools    []*pool // in the order of the ranges
	nodes    map[string]*node
	held     held
	former   former
	previous map[string][]netip.Prefix // recorded in an earlier run, until Allocate
	pending  map[string]bool           // nodes that Allocate has to look at
	waiting  map[string]bool           // nodes without a free subnet
	freed    bool                      // since the last Allocate
}

type node struct {
	Node
	subnets []netip.Prefix // IPv4 first
	full    bool           // a family is missing, because its ranges are full
}

// New returns an allocator without nodes.
func New(ranges Ranges) *Allocator {
	a := &Allocator{nodes: map[string]*node{}, previous: map[string][]netip.Prefix{}, pending: map[string]bool{}, waiting: map[string]bool{}}
	for _, r := range ranges {
		a.pools = append(a.pools, &pool{Range: r})
	}
	return a
}

// Restore records the subnets of nodes and the Marks of an earlier run. Before the next Allocate, all nodes that exist
// must be put: the others are gone.
func (a *Allocator) Restore(subnets map[string][]netip.Prefix, marks []netip.Prefix) {
	maps.Copy(a.previous, subnets)
	for name := range subnets {
		a.pending[name] = true
	}
	for _, p := range a.pools {
		marked := false
		for _, m := range marks {
			if p.contains(m) && m.Bits() == p.Length {
				p.next, marked = p.number(m.Addr()), true
			}
		}
		for _, s := range slices.Concat(slices.Collect(maps.Values(subnets))...) {
			if !marked && p.contains(s) && p.end(s) > p.next {
				p.pass(s)
			}
		}
	}
}

// Marks are the next subnet of each range: where an allocator resumes after a restart.
func (a *Allocator) Marks() []netip.Prefix {
	out := make([]netip.Prefix, len(a.pools))
	for i, p := range a.pools {
		out[i] = p.nth(p.next % p.size())
	}
	return out
}

// Put records the latest version of a node.
func (a *Allocator) Put(n Node) {
	old := a.nodes[n.Name]
	if old == nil {
		old = &node{}
		a.nodes[n.Name] = old
	} else if old.Node.equal(n) {
		return
	}
	old.Node = n
	a.pending[n.Name] = true
}

// Remove forgets a node. Its subnets are free; other nodes get them last.
func (a *Allocator) Remove(name string) {
	n := a.nodes[name]
	if n == nil {
		return
	}
	subnets := n.subnets
	a.release(n)
	a.keep(name, subnets)
	delete(a.nodes, name)
	delete(a.waiting, name)
	a.pending[name] = true // so that Allocate returns it
}

// Names lists the nodes.
func (a *Allocator) Names() []string { return slices.Sorted(maps.Keys(a.nodes)) }

// Subnets are the subnets of a node, IPv4 first; nil: it has none.
func (a *Allocator) Subnets(name string) []netip.Prefix {
	if n := a.nodes[name]; n != nil {
		return n.subnets
	}
	return nil
}

// Allocate gives nodes their missing subnets, as far as there are free ones, and returns the nodes that may have other
// subnets, or another Problem. It looks only at nodes where a change may help.
//
// A node keeps its subnets, and those of its record. Then a valid subnet in its annotations is granted, the oldest node
// first. Then a node gets those that the former one of its name had. Only then new subnets are given.
func (a *Allocator) Allocate() []string {
	touched := maps.Clone(a.pending)
	if a.freed {
		maps.Copy(touched, a.waiting)
	}
	nodes := a.oldestFirst(touched)
	for _, n := range nodes {
		a.claim(n, a.previous[n.Name], a.inRange)
	}
	for name, subnets := range a.previous {
		if a.nodes[name] == nil {
			a.keep(name, subnets)
		}
	}
	for _, n := range nodes {
		a.claim(n, n.Wish, a.valid)
	}
	for _, n := range nodes {
		a.claim(n, a.former.take(n.Name), a.inRange)
	}
	for _, n := range nodes {
		a.complete(n)
	}
	a.previous, a.pending, a.freed = map[string][]netip.Prefix{}, map[string]bool{}, false
	return slices.Sorted(maps.Keys(touched))
}

// oldestFirst returns the nodes with some names and a valid name.
func (a *Allocator) oldestFirst(list map[string]bool) []*node {
	var nodes []*node
	for name := range list {
		if n := a.nodes[name]; n != nil && a.checkName(name) == nil {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name)) })
	return nodes
}

// checkName returns the problem of a node's name, or nil. A node with subnets keeps them under a name too long for a new one.
func (a *Allocator) checkName(name string) error {
	if len(a.previous[name]) > 0 || len(a.Subnets(name)) > 0 {
		return topology.CheckNodeName(name)
	}
	return topology.CheckNewName(name)
}

// claim gives a node those of subnets that it may have, are free, and of a family in which it has none.
func (a *Allocator) claim(n *node, subnets []netip.Prefix, may func(netip.Prefix) bool) {
	for _, s := range subnets {
		if _, taken := a.held.overlapping(s); !taken && may(s) && !hasFamily(n.subnets, s.Addr()) {
			a.give(n, s)
		}
	}
}

func hasFamily(subnets []netip.Prefix, family netip.Addr) bool {
	return slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), family) })
}

// inRange reports whether a subnet of an earlier run lies in a range. The range may have another prefix length now.
func (a *Allocator) inRange(s netip.Prefix) bool {
	return slices.ContainsFunc(a.pools, func(p *pool) bool { return p.contains(s) })
}

// valid reports whether a subnet lies in a range and has its prefix length.
func (a *Allocator) valid(s netip.Prefix) bool {
	return slices.ContainsFunc(a.pools, func(p *pool) bool { return p.contains(s) && s.Bits() == p.Length })
}

// complete gives a node a free subnet of each family without one. If a family has none, the node gets nothing.
func (a *Allocator) complete(n *node) {
	found := map[*pool]netip.Prefix{}
	for _, family := range ipnet.Families() {
		if hasFamily(n.subnets, family) || !a.needs(family) {
			continue
		}
		p, s := a.find(family)
		if n.full = p == nil; n.full {
			a.waiting[n.Name] = true
			return
		}
		found[p] = s
	}
	n.full = false
	delete(a.waiting, n.Name)
	for p, s := range found {
		p.pass(s)
		a.give(n, s)
	}
}

// keep keeps free subnets for the next node of a name.
func (a *Allocator) keep(name string, subnets []netip.Prefix) {
	for _, s := range subnets {
		if _, taken := a.held.overlapping(s); !taken && a.inRange(s) {
			a.former.add(s, name)
		}
	}
}

// needs reports whether nodes have subnets of a family.
func (a *Allocator) needs(family netip.Addr) bool {
	return slices.ContainsFunc(a.pools, func(p *pool) bool { return ipnet.SameFamily(p.CIDR.Addr(), family) })
}

// find returns a free subnet of the first range of a family with room; nil: there is none. It returns one that a former
// node had if there is no other.
func (a *Allocator) find(family netip.Addr) (*pool, netip.Prefix) {
	pools := slices.DeleteFunc(slices.Clone(a.pools), func(p *pool) bool { return !ipnet.SameFamily(p.CIDR.Addr(), family) })
	for _, p := range pools {
		if s, ok := p.find(a.held, a.former.subnets); ok {
			return p, s
		}
	}
	for _, p := range pools {
		if s, ok := p.find(a.held); ok {
			return p, s
		}
		p.full = true
	}
	return nil, netip.Prefix{}
}

func (a *Allocator) give(n *node, s netip.Prefix) {
	a.former.forget(s)
	a.held = a.held.with(s)
	n.subnets = append(slices.Clone(n.subnets), s)
	slices.SortFunc(n.subnets, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
}

// release takes all subnets from a node.
func (a *Allocator) release(n *node) {
	for _, s := range n.subnets {
		a.held = a.held.without(s)
		a.freed = true
	}
	n.subnets = nil
	for _, p := range a.pools {
		p.full = p.full && !a.freed
	}
}

// Problem is the reason why a node lacks subnets, or why its annotations are replaced; nil if there is none.
func (a *Allocator) Problem(name string) *feature.Problem {
	n := a.nodes[name]
	if n == nil {
		return nil
	}
	if err := a.checkName(name); err != nil {
		return &feature.Problem{Reason: "BadNodeName", Message: err.Error()}
	}
	if n.full {
		return &feature.Problem{Reason: "SubnetsFull", Message: fmt.Sprintf("node %s waits for a subnet: all subnets of %s are in use: add a range to the cluster subnets, or delete a node", name, ipnet.Join(a.fullRanges()))}
	}
	if n.Invalid != nil {
		return &feature.Problem{Reason: "BadSubnetAnnotation", Message: fmt.Sprintf("%v: replaced by the subnets of node %s, %s", n.Invalid, name, ipnet.Join(n.subnets))}
	}
	for _, s := range n.Wish {
		if !slices.Contains(n.subnets, s) {
			return &feature.Problem{Reason: "BadSubnetAnnotation", Message: fmt.Sprintf("the annotations of node %s have subnet %s, %s: replaced by its subnets %s",
				name, s, a.refusal(n, s), ipnet.Join(n.subnets))}
		}
	}
	return nil
}

// refusal is the reason why a node does not have subnet s.
func (a *Allocator) refusal(n *node, s netip.Prefix) string {
	_, taken := a.held.overlapping(s)
	switch {
	case !a.inRange(s):
		return "which is in no range of the cluster subnets"
	case !a.valid(s):
		return "which has another prefix length than its range"
	case taken && !slices.ContainsFunc(n.subnets, s.Overlaps):
		return "which another node has"
	}
	return "but the node has another one already"
}

// fullRanges are the ranges without a free subnet.
func (a *Allocator) fullRanges() (out Ranges) {
	for _, p := range a.pools {
		if p.full {
			out = append(out, p.Range)
		}
	}
	return out
}
