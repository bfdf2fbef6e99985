package policy

import (
	"slices"
	"strconv"
	"strings"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nb"
)

// A namespace exists in Kubernetes, or something refers to it.
type namespace struct {
	name      string
	known     bool // to Kubernetes: else no selector of namespaces matches it
	labels    labels
	logging   logging
	classes   map[string]*class // by classText
	own       *scope            // this namespace only; nil if no selector has it
	matching  []*scope          // the namespace selectors that match it
	policies  []*state
	pods      count // of the namespace
	selectors int   // of the policies
}

// A class is a set of pods in one namespace with the same labels and named ports: no selector
// distinguishes them.
type class struct {
	ns     *namespace
	text   string
	labels labels
	ports  []Port // sorted
	groups []*group
	sets   map[*numbers]*portSet // of groups
	pods   []*member
	at     [][2]int // in the lists of the census, by label
}

// A member is a pod with a logical port.
type member struct {
	pod.Key
	class *class
	at    int // in class.pods
}

func (x *Index) touchClass(c *class) {
	for _, m := range c.pods {
		x.touch(m.Unit())
	}
}

func (x *Index) namespace(name string) *namespace {
	n := x.namespaces[name]
	if n == nil {
		n = &namespace{name: name, classes: map[string]*class{}}
		x.namespaces[name] = n
	}
	return n
}

func (x *Index) forgetIfEmpty(n *namespace) {
	if !n.known && len(n.classes) == 0 && n.own == nil && len(n.policies) == 0 {
		delete(x.namespaces, n.name)
	}
}

// relog sets the logging of a namespace's policies.
func (x *Index) relog(n *namespace, log logging) {
	if log == n.logging {
		return
	}
	n.logging = log
	if len(n.policies) > 0 {
		x.touch(LoggingUnit)
	}
	for _, p := range n.policies {
		x.touch(p.Unit())
		x.touch(p.subject.unit())
	}
}

// relabel sets the labels of a namespace, and regroups its pods.
func (x *Index) relabel(n *namespace, known bool, l labels) {
	for _, old := range n.labels {
		drop(x.labelled, old, n)
	}
	x.tallyAll(x.census.ofSpace, n.labels, -n.pods.pods)
	switch {
	case known && !n.known:
		x.tallyTotal(&x.census.namespaces, 1)
	case !known && n.known:
		x.tallyTotal(&x.census.namespaces, -1)
	}
	n.known, n.labels = known, l
	x.tallyAll(x.census.ofSpace, l, n.pods.pods)
	for _, now := range l {
		x.labelled[now] = append(x.labelled[now], n)
	}
	for _, s := range n.matching {
		delete(s.namespaces, n)
	}
	n.matching = nil
	if known {
		x.selecting.candidates(l, func(s *scope) {
			if s.matches.matches(l) {
				n.matching = append(n.matching, s)
				s.namespaces[n] = true
			}
		})
	}
	for _, c := range n.classes {
		x.regroup(c)
	}
}

// regroup computes the groups of a class.
func (x *Index) regroup(c *class) {
	var now []*group
	look := func(s *scope) {
		s.groups.candidates(c.labels, func(g *group) {
			if g.pods.matches(c.labels) {
				now = append(now, g)
			}
		})
	}
	if c.ns.own != nil {
		look(c.ns.own)
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

// classText identifies a class by its labels and ports.
func classText(l labels, ports []Port) string {
	var b strings.Builder
	for i := range l {
		b.WriteString(l[i].key)
		b.WriteByte('=')
		b.WriteString(l[i].value)
		b.WriteByte(',')
	}
	for _, p := range ports {
		b.WriteByte(' ')
		b.WriteString(string(p.Protocol))
		b.WriteByte('/')
		b.WriteString(p.Name)
		b.WriteByte('=')
		b.WriteString(strconv.Itoa(int(p.Number)))
	}
	return b.String()
}

// leave removes m from its class, and the class with its last pod.
func (x *Index) leave(m *member) {
	c := m.class
	x.tallyPod(c, -1)
	last := c.pods[len(c.pods)-1]
	c.pods[m.at], last.at = last, m.at
	c.pods[len(c.pods)-1] = nil
	if c.pods = c.pods[:len(c.pods)-1]; len(c.pods) > 0 {
		return
	}
	for _, g := range c.groups {
		x.count(g, c, -1)
	}
	delete(c.ns.classes, c.text)
	x.delist(c)
}

// Refs returns the references of a pod's logical port to port groups.
func (x *Index) Refs(k pod.Key) []nb.Ref { return x.members[k].refs() }

// refs returns the references of a member, none for nil.
func (m *member) refs() []nb.Ref {
	if m == nil {
		return nil
	}
	var out []nb.Ref
	for _, g := range m.class.groups {
		out = append(out, portGroup(g.name, "ports"))
		for _, n := range g.named {
			if set := m.class.sets[n]; set != nil && n.live {
				out = append(out, portGroup(set.group, "ports"))
			}
		}
	}
	slices.SortFunc(out, func(a, b nb.Ref) int { return strings.Compare(a.ID, b.ID) })
	return out
}
