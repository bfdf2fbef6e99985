package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A group is the pods that a distinct selector selects.
type group struct {
	name     string // of the Port_Group
	scope    *scope
	pods     labelSelector
	users    int        // policies that it applies to, and rules that name it
	subjects [2]int     // policies that isolate it, by direction
	policies []*state   // that apply to it
	classes  int        // how many are in it
	named    []*numbers // the named ports that users resolve in it
}

// text says which pods are meant.
func (g *group) text() string {
	if len(g.pods.needs) == 0 {
		return "all pods " + g.scope.text()
	}
	return "pods with " + g.pods.String() + " " + g.scope.text()
}

func (g *group) unit() nb.Unit { return nb.Unit(GroupPrefix + g.name) }

// GroupPrefix starts the units of port groups. In alphabetical order, in which
// units are written, groups come before the pods and policies that refer to them.
const GroupPrefix = "group/"

// numbers are what a named port is, among the pods of a group: there is one more
// port group for each number.
type numbers struct {
	namedPort
	users   []*state       // once for each rule
	classes map[uint16]int // how many classes have the number
}

// count notes that a class has come into a group (1), or left it (-1).
func (x *Index) count(g *group, c *class, by int) {
	if g.classes += by; g.classes == 0 || g.classes == by {
		x.touchNamed(g)
	}
	for _, n := range g.named {
		if number, ok := n.of(c); ok {
			x.countNumber(g, n, number, by)
		}
	}
}

// touchNamed touches the policies that have something to say of whether there
// are pods in g.
func (x *Index) touchNamed(g *group) {
	for _, n := range g.named {
		for _, p := range n.users {
			x.touch(p.Unit())
		}
	}
}

func (x *Index) countNumber(g *group, n *numbers, number uint16, by int) {
	n.classes[number] += by
	now := n.classes[number]
	if now == 0 {
		delete(n.classes, number)
	}
	if now != 0 && now != by {
		return
	}
	x.touch(g.unit())
	for _, p := range n.users {
		x.touch(p.Unit())
	}
}

// of is the number of the port in the pods of a class.
func (p namedPort) of(c *class) (uint16, bool) {
	for i := range c.ports {
		if q := &c.ports[i]; q.Name == p.name && q.Protocol == p.proto {
			return q.Number, true
		}
	}
	return 0, false
}

// isolate notes that one more policy (1), or one less (-1), isolates a group.
func (x *Index) isolate(g *group, d direction, by int) {
	if g.subjects[d] += by; g.subjects[d] == 0 || g.subjects[d] == by {
		x.touch(g.unit())
	}
}

// use finds or makes the group of a peer of a policy in namespace n.
func (x *Index) use(from peer, n *namespace) *group {
	s := x.scopeOf(from, n)
	g := &group{scope: s, pods: from.pods}
	g.name = groupName(g.text())
	if known := x.groups[g.name]; known != nil {
		known.users++
		return known
	}
	g.users = 1
	x.groups[g.name] = g
	s.groups.add(g.pods, g)
	s.size++
	x.touch(g.unit())
	x.eachClass(s, func(c *class) {
		if g.pods.matches(c.labels) {
			c.groups = append(c.groups, g)
			x.count(g, c, 1)
			x.touchClass(c)
		}
	})
	return g
}

// disuse is the opposite of use.
func (x *Index) disuse(g *group) {
	if g.users--; g.users > 0 {
		return
	}
	delete(x.groups, g.name)
	g.scope.groups.remove(g.pods, g)
	x.touch(g.unit())
	x.eachClass(g.scope, func(c *class) {
		if slices.Contains(c.groups, g) {
			c.groups = without(c.groups, g)
			x.touchClass(c)
		}
	})
	if g.scope.size--; g.scope.size == 0 {
		x.forgetScope(g.scope)
	}
}

// groupName is a name for a Port_Group: a word in OVN's expressions, and the
// same for the same pods.
func groupName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "np_" + hex.EncodeToString(sum[:8])
}

// resolve notes that a rule of p resolves a named port among the pods of g.
func (x *Index) resolve(g *group, port namedPort, p *state) {
	for _, n := range g.named {
		if n.namedPort == port {
			n.users = append(n.users, p)
			return
		}
	}
	n := &numbers{namedPort: port, users: []*state{p}, classes: map[uint16]int{}}
	g.named = append(g.named, n)
	slices.SortFunc(g.named, func(a, b *numbers) int {
		return cmp.Or(strings.Compare(string(a.proto), string(b.proto)), strings.Compare(a.name, b.name))
	})
	x.eachClass(g.scope, func(c *class) {
		if number, ok := port.of(c); ok && slices.Contains(c.groups, g) {
			x.countNumber(g, n, number, 1)
			x.touchClass(c)
		}
	})
}

// unresolve is the opposite of resolve.
func (x *Index) unresolve(g *group, port namedPort, p *state) {
	i := slices.IndexFunc(g.named, func(n *numbers) bool { return n.namedPort == port })
	n := g.named[i]
	if n.users = without(n.users, p); len(n.users) > 0 {
		return
	}
	g.named = slices.Delete(g.named, i, i+1)
	x.touch(g.unit())
	x.eachClass(g.scope, func(c *class) {
		if _, ok := port.of(c); ok && slices.Contains(c.groups, g) {
			x.touchClass(c)
		}
	})
}

func portGroup(name, column string) nb.Ref {
	return nb.Ref{Table: nbdb.PortGroupTable, ID: name, Column: column}
}

// numbered is the name of the port group of the pods of g whose named port has a
// number: np_0123456789abcdef_tcp_http_8080. Names of ports have no underscores.
func (g *group) numbered(p namedPort, number uint16) string {
	return fmt.Sprintf("%s_%s_%s_%d", g.name, keyword(p.proto), strings.ReplaceAll(p.name, "-", "_"), number)
}
