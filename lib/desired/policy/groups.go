package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A group is the set of pods of a distinct selector.
type group struct {
	name     string // of the Port_Group
	scope    *scope
	pods     labelSelector
	users    int                 // policies with it as subject, and rules with it as peer
	subjects [2]int              // policies that isolate it, by direction
	policies []*state            // with it as subject
	classes  int                 // number of classes in it
	named    map[string]*numbers // the named ports that users resolve in it, by their text
	round    int                 // of the latest groups.regroup that found a class in it
}

// groups are the groups of all policies, with the classes of pods in each.
type groups struct {
	all       map[string]*group // by name
	nameBytes int               // of a hash in short names
	round     int               // of regroup
	census    *census
	spaces    *spaces
	pending   *pending
	touched   *touched
}

// text describes the selected pods.
func (g *group) text() string {
	if len(g.pods.needs) == 0 {
		return "all pods " + g.scope.text()
	}
	return "pods with " + g.pods.String() + " " + g.scope.text()
}

// summary is text, shortened: rows repeat it.
func (g *group) summary() string { return shortened(g.text(), 1000) }

func (g *group) unit() nb.Unit {
	if g.scope.refused {
		return g.scope.ns.refusedUnit()
	}
	return nb.Unit(GroupPrefix + g.name)
}

// GroupPrefix starts the units of port groups. In alphabetical order, in which
// units are written, groups come before the pods and policies that refer to them.
const GroupPrefix = "group/"

func (x *groups) touchClass(c *class) {
	for _, m := range c.pods {
		x.touched.add(m.Unit())
	}
}

// count records that a class entered a group (1) or left it (-1).
func (x *groups) count(g *group, c *class, by int) {
	if g.classes += by; g.classes == 0 || g.classes == by {
		for _, n := range g.named { // their problems depend on whether there are pods
			x.touchUsers(n)
		}
	}
	for _, n := range g.named {
		x.countPorts(g, n, c, by)
	}
}

// regroup computes the groups of a class.
func (x *groups) regroup(c *class) {
	var now []*group
	look := func(s *scope) {
		s.groups.candidates(c.labels, func(g *group) {
			if g.pods.matches(c.labels) {
				now = append(now, g)
			}
		})
	}
	for _, s := range [...]*scope{c.ns.own, c.ns.refused} {
		if s != nil {
			look(s)
		}
	}
	for _, s := range c.ns.matching {
		look(s)
	}
	x.round++
	for _, g := range now {
		g.round = x.round
	}
	before := c.groups
	c.groups = now
	changed := false
	for _, g := range before {
		if g.round != x.round {
			x.count(g, c, -1)
			changed = true
		}
		g.round = 0
	}
	for _, g := range now {
		if g.round == x.round {
			x.count(g, c, 1)
			changed = true
		}
	}
	if changed {
		x.touchClass(c)
	}
}

// eachCandidate calls f with each class in the scope of g that g may select.
func (x *groups) eachCandidate(g *group, f func(*class)) {
	lists, total, ok := x.census.listed(g.pods, g.scope)
	if !ok || g.scope.fewer(total) {
		g.scope.eachClass(f)
		return
	}
	for _, list := range lists {
		for _, c := range list {
			if g.scope.has(c.ns) {
				f(c)
			}
		}
	}
}

// eachMember calls f with each class in g.
func (x *groups) eachMember(g *group, f func(*class)) {
	x.eachCandidate(g, func(c *class) {
		if slices.Contains(c.groups, g) {
			f(c)
		}
	})
}

// isolate records that one policy more (1) or less (-1) isolates a group.
func (x *groups) isolate(g *group, d direction, by int) {
	if g.subjects[d] += by; g.subjects[d] == 0 || g.subjects[d] == by {
		x.touched.add(g.unit())
		if g.scope.refused {
			x.eachMember(g, x.touchClass)
		}
	}
}

// use finds or makes the group of a peer of a policy in namespace n.
func (x *groups) use(from peer, n *namespace) *group {
	return x.useIn(x.spaces.scopeOf(from, n), from.pods)
}

// useIn finds or makes the group of a selector in a scope.
func (x *groups) useIn(s *scope, pods labelSelector) *group {
	g := &group{scope: s, pods: pods, users: 1}
	if known := x.nameGroup(g); known != nil {
		known.users++
		return known
	}
	x.all[g.name] = g
	s.groups.add(g.pods, g)
	s.size++
	x.touched.add(g.unit())
	x.eachCandidate(g, func(c *class) {
		if g.pods.matches(c.labels) {
			c.groups = append(c.groups, g)
			x.count(g, c, 1)
			x.touchClass(c)
		}
	})
	return g
}

// disuse is the opposite of use.
func (x *groups) disuse(g *group) {
	if g.users--; g.users > 0 {
		return
	}
	delete(x.all, g.name)
	g.scope.groups.remove(g.pods, g)
	x.touched.add(g.unit())
	x.eachMember(g, func(c *class) {
		c.groups = without(c.groups, g)
		x.touchClass(c)
	})
	if g.scope.size--; g.scope.size == 0 {
		x.spaces.forgetScope(g.scope)
	}
}

// peerText describes the pods of a peer of a policy in namespace n, like the text of
// their group.
func peerText(p peer, n *namespace) string {
	s := &scope{ns: n}
	if p.everywhere {
		s = &scope{matches: p.namespaces}
	}
	return (&group{scope: s, pods: p.pods}).text()
}

// nameGroup names a new group, or returns the group of the same pods. An author may find two selectors with one short
// name (2^32 tries): one of them has the long name then.
func (x *groups) nameGroup(g *group) *group {
	text := g.text()
	for _, bytes := range []int{x.nameBytes, 2 * x.nameBytes} {
		g.name = groupName(text, bytes)
		known := x.all[g.name]
		if known == nil {
			return nil
		}
		if known.text() == text {
			return known
		}
	}
	g.name = groupName(text, sha256.Size)
	return x.all[g.name]
}

// groupName returns a name for a Port_Group: a word in OVN's expressions, and always
// the same for the same pods. It has the given number of bytes of the text's hash.
func groupName(text string, bytes int) string {
	sum := sha256.Sum256([]byte(text))
	return "np_" + hex.EncodeToString(sum[:bytes])
}

func portGroup(name, column string) nb.Ref {
	return nb.Ref{Table: nbdb.PortGroupTable, ID: name, Column: column}
}
