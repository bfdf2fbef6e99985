package policy

import (
	"fmt"
	"math/bits"
)

// The reach of a policy is how far its named ports count in other namespaces than its own. Whoever may create pods chooses
// their numbers, and each set of numbers is a port group. So if there are too many, those sets are left out first that only
// namespaces with many sets have. Pods of the other namespaces keep their connections.
const (
	nowhere    = -1 // the policy allows nothing: its own namespace has too many sets
	ownOnly    = 0
	everywhere = 32 // no set is left out; more than each rank
)

// rankOf is the rank of a namespace with a number of sets. It is coarse: few changes matter.
func rankOf(sets int) int { return bits.Len(uint(sets)) }

// A tally counts sets and their ports.
type tally struct{ sets, ports int }

// A spaceSets has the sets in one namespace, each with its number of classes there.
type spaceSets struct {
	classes map[*portSet]int
	ports   int // in all sets
}

// place records that a class of a namespace with a set came (1) or went (-1). It reports whether ranks may differ.
func (n *numbers) place(ns *namespace, set *portSet, by int) bool {
	at := n.spaces[ns]
	if at == nil {
		at = &spaceSets{classes: map[*portSet]int{}}
		n.spaces[ns] = at
	}
	now := at.classes[set] + by
	if at.classes[set] = now; now == 0 {
		delete(at.classes, set)
	}
	if now != 0 && now != by {
		return false
	}
	if at.ports += by * len(set.ports); len(at.classes) == 0 {
		delete(n.spaces, ns)
	}
	n.ranked = false
	return true
}

// rank computes the rank of each set: the smallest of the namespaces with the set. Without a policy that leaves out sets,
// nobody asks for it.
func (n *numbers) rank() {
	if n.ranked {
		return
	}
	n.ranked = true
	for _, set := range n.sets {
		set.rank = everywhere
	}
	for _, at := range n.spaces {
		r := rankOf(len(at.classes))
		for set := range at.classes {
			set.rank = min(set.rank, r)
		}
	}
	n.upTo = [everywhere]tally{}
	for _, set := range n.sets {
		n.upTo[set.rank].sets++
		n.upTo[set.rank].ports += len(set.ports)
	}
	for r := 1; r < everywhere; r++ {
		n.upTo[r].sets += n.upTo[r-1].sets
		n.upTo[r].ports += n.upTo[r-1].ports
	}
}

// within counts the sets within a reach, and at least all in the namespace own.
func (n *numbers) within(reach int, own *namespace) tally {
	if reach == everywhere {
		return tally{len(n.sets), n.ports}
	}
	n.rank()
	out := n.upTo[reach]
	if at := n.spaces[own]; at != nil && rankOf(len(at.classes)) > reach {
		out.sets, out.ports = out.sets+len(at.classes), out.ports+at.ports
	}
	return out
}

// space is the namespace of a policy.
func (s *state) space() *namespace { return s.subject.scope.ns }

// counts reports whether the pods of a set are within the reach of s.
func (s *state) counts(n *numbers, set *portSet) bool {
	if s.reach == everywhere || s.reach == nowhere {
		return s.reach == everywhere
	}
	n.rank()
	at := n.spaces[s.space()]
	return set.rank <= s.reach || at != nil && at.classes[set] > 0
}

// leftOut describes the pods without connections by named ports, "" if there are none.
func (s *state) leftOut(l limits) string {
	if s.reach == nowhere || s.reach == everywhere {
		return ""
	}
	return fmt.Sprintf("spec: named ports allow no numbers that pods have only in other namespaces with %d or more different ones: with these, they would be more than %d port groups, or more than %d bytes of matches; give the number, or have the same in all pods",
		1<<s.reach, l.portSets, l.portBytes)
}

// A portCost is the number of port groups and the bytes of matches for the named ports of a policy, and the flows of all its
// rules: each set of an ingress rule has an ACL with all peers.
type portCost struct{ sets, bytes, flows int }

// portCost computes the cost with a reach.
func (s *state) portCost(reach int) (c portCost) {
	for i := range s.rules {
		r, flows := &s.rules[i], s.flows[i].flows
		if len(r.named) == 0 || r.dir == egress || len(r.ports) > 0 {
			c.flows += flows
		}
		if len(r.named) == 0 {
			continue
		}
		peers := 0
		if r.dir == ingress {
			peers = r.bytes()
		}
		for _, g := range r.resolvers(s) {
			n := g.named[r.names].within(reach, s.space())
			c.sets += n.sets
			c.bytes += n.sets*(peers+100) + n.ports*20
			if r.dir == ingress {
				c.flows += n.sets * flows
			}
		}
	}
	return c
}

// settlePorts compares the port groups and matches of the named ports of a policy with their limits.
func (x *policies) settlePorts(s *state) {
	var c portCost
	l, maxFlows := x.planner.limits, x.planner.maxFlows()
	reach := everywhere
	for ; reach >= ownOnly; reach-- {
		if c = s.portCost(reach); c.sets <= l.portSets && c.bytes <= l.portBytes && c.flows <= maxFlows {
			break
		}
	}
	choked := ""
	const format = "spec: nothing is allowed: the policy's named ports become %d %s, more than %d; name fewer ports, or give them the same numbers in all pods"
	switch {
	case reach != nowhere:
	case c.sets > l.portSets:
		choked = fmt.Sprintf(format, c.sets, "port groups", l.portSets)
	case c.bytes > l.portBytes:
		choked = fmt.Sprintf(format, c.bytes, "bytes of matches", l.portBytes)
	default:
		choked = fmt.Sprintf(format, c.flows, "flows to pods of their rules and subnets", maxFlows)
	}
	if choked != s.choked || reach != s.reach {
		x.touched.add(s.Unit())
	}
	s.choked = choked
	if reach == s.reach {
		return
	}
	s.reach = reach
	for i := range s.rules {
		if r := &s.rules[i]; len(r.named) > 0 {
			for _, g := range r.resolvers(s) {
				x.pending.sets[g.named[r.names]] = g
			}
		}
	}
}

// settleSets decides which sets of n have port groups: those within the reach of a user.
func (x *groups) settleSets(g *group, n *numbers) {
	n.reach, n.tight = nowhere, false
	own := map[*namespace]bool{}
	for _, s := range n.users {
		n.reach, n.tight = max(n.reach, s.reach), n.tight || s.reach < everywhere
		if s.reach != nowhere {
			own[s.space()] = true
		}
	}
	owned := map[*portSet]bool{}
	if n.reach < everywhere {
		n.rank()
		for ns := range own {
			if at := n.spaces[ns]; at != nil {
				for set := range at.classes {
					owned[set] = true
				}
			}
		}
	}
	changed := map[*portSet]bool{}
	for _, set := range n.sets {
		if live := n.reach == everywhere || set.rank <= n.reach || owned[set]; live != set.live {
			set.live, changed[set] = live, true
		}
	}
	x.touchSets(g, n, changed)
}

// touchSets touches a group, and the pods in some port groups of n.
func (x *groups) touchSets(g *group, n *numbers, sets map[*portSet]bool) {
	if len(sets) == 0 {
		return
	}
	x.touched.add(g.unit())
	x.eachMember(g, func(c *class) {
		if set := c.sets[n]; set != nil && sets[set] {
			x.touchClass(c)
		}
	})
}
