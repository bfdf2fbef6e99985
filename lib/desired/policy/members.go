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
	refused   *scope            // of the policies beyond a limit; nil if there are none
	matching  []*scope          // the namespace selectors that match it
	policies  []*state
	pods      count // of the namespace
	selectors int   // of the policies
	changes   int   // of policies since the limit was applied
	full      bool  // some policies are above the limit
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

// relog sets the logging of a namespace's policies.
func (x *Index) relog(n *namespace, log logging) {
	if log == n.logging {
		return
	}
	n.logging = log
	if len(n.policies) > 0 {
		x.touched.add(LoggingUnit)
	}
	for _, p := range n.policies {
		x.touched.add(p.Unit())
		x.touched.add(p.subject.unit())
	}
}

// relabel sets the labels of a namespace, and regroups its pods.
func (x *Index) relabel(n *namespace, known bool, l labels) {
	x.census.tallyAll(x.census.ofSpace, n.labels, -n.pods.pods)
	switch {
	case known && !n.known:
		x.census.tallyTotal(&x.census.namespaces, 1)
	case !known && n.known:
		x.census.tallyTotal(&x.census.namespaces, -1)
	}
	x.spaces.relabel(n, known, l)
	x.census.tallyAll(x.census.ofSpace, l, n.pods.pods)
	for _, c := range n.classes {
		x.groups.regroup(c)
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
	x.census.tallyPod(c, -1)
	last := c.pods[len(c.pods)-1]
	c.pods[m.at], last.at = last, m.at
	c.pods[len(c.pods)-1] = nil
	if c.pods = c.pods[:len(c.pods)-1]; len(c.pods) > 0 {
		return
	}
	for _, g := range c.groups {
		x.groups.count(g, c, -1)
	}
	delete(c.ns.classes, c.text)
	x.census.delist(c)
}

// Refs returns the references of a pod's logical port to port groups.
func (x *Index) Refs(k pod.Key) []nb.Ref { return x.members[k].refs() }

// refs returns the references of a member, none for nil.
func (m *member) refs() []nb.Ref {
	if m == nil {
		return nil
	}
	var out []nb.Ref
	var refused [2]bool
	for _, g := range m.class.groups {
		if g.scope.refused {
			for d, n := range g.subjects {
				refused[d] = refused[d] || n > 0
			}
			continue
		}
		out = append(out, portGroup(g.name, "ports"))
		for _, n := range g.named {
			if set := m.class.sets[n]; set != nil && set.live {
				out = append(out, portGroup(set.group, "ports"))
			}
		}
	}
	for d, yes := range refused {
		if yes {
			out = append(out, portGroup(m.class.ns.refusedGroup(direction(d)), "ports"))
		}
	}
	slices.SortFunc(out, func(a, b nb.Ref) int { return strings.Compare(a.ID, b.ID) })
	return out
}
