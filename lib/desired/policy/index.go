package policy

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// An Index holds the current inputs of policies, and the pods of each selector.
//
// Each change returns the units touched: all other units have the same Rows,
// and other pods' units the same Refs, as before. The cost of a change depends on the
// number of selectors and pods concerned, not on the size of the cluster.
type Index struct {
	namespaces map[string]*namespace
	labelled   map[label][]*namespace
	scopes     map[string]*scope // of selectors of namespaces, by their text
	selecting  index[*scope]     // the same, by their requirements
	members    map[pod.Key]*member
	policies   map[Key]*state
	groups     map[string]*group // by name
	touched    []nb.Unit
	limits     limits
	census     *census
	due        map[*state]bool // to be planned again
	unpriced   map[*state]bool // to be compared with the limits again
	unsettled  map[*state]bool // with named ports to be compared with their limits
	round      int             // of regroup
}

// NewIndex returns an empty index.
func NewIndex() *Index { return newIndex(defaultLimits()) }

func newIndex(l limits) *Index {
	return &Index{
		limits:     l,
		namespaces: map[string]*namespace{}, labelled: map[label][]*namespace{}, scopes: map[string]*scope{},
		members: map[pod.Key]*member{}, policies: map[Key]*state{}, groups: map[string]*group{},
		census: newCensus(l.unit), due: map[*state]bool{}, unpriced: map[*state]bool{}, unsettled: map[*state]bool{},
	}
}

func (x *Index) touch(u nb.Unit) { x.touched = append(x.touched, u) }

// flush applies the consequences of a change, and returns the units touched since the
// last flush.
func (x *Index) flush() []nb.Unit {
	x.replan()
	for s := range x.unsettled {
		if x.policies[s.Key] == s {
			x.settlePorts(s)
		}
	}
	clear(x.unsettled)
	out := x.touched
	x.touched = nil
	return out
}

// PutNamespace records a namespace.
func (x *Index) PutNamespace(o *corev1.Namespace) []nb.Unit {
	n := x.namespace(o.Name)
	x.relog(n, newLogging(o.Annotations[names.ACLLogging]))
	if l := newLabels(o.Labels); !n.known || !slices.Equal(l, n.labels) {
		x.relabel(n, true, l)
	}
	return x.flush()
}

// RemoveNamespace forgets a namespace.
func (x *Index) RemoveNamespace(name string) []nb.Unit {
	n := x.namespaces[name]
	if n == nil || !n.known {
		return nil
	}
	x.relog(n, logging{})
	x.relabel(n, false, nil)
	x.forgetIfEmpty(n)
	return x.flush()
}

// PutPod records a pod with a logical port: its labels, and the named ports of its
// containers.
func (x *Index) PutPod(k pod.Key, podLabels map[string]string, ports []Port) []nb.Unit {
	l := newLabels(podLabels)
	slices.SortFunc(ports, func(a, b Port) int { return comparePort(a, namedPort{b.Protocol, b.Name}) })
	text := classText(l, ports)
	m := x.members[k]
	if m != nil && m.class.text == text {
		return nil
	}
	before := m.refs()
	if m != nil {
		x.leave(m)
	} else {
		m = &member{Key: k}
		x.members[k] = m
	}
	n := x.namespace(k.Namespace)
	c := n.classes[text]
	if c == nil {
		c = &class{ns: n, text: text, labels: l, ports: ports}
		n.classes[text] = c
		x.enlist(c)
		x.regroup(c)
	}
	m.class, m.at = c, len(c.pods)
	c.pods = append(c.pods, m)
	x.tallyPod(c, 1)
	if !slices.Equal(before, m.refs()) {
		x.touch(k.Unit())
	}
	return x.flush()
}

// RemovePod forgets a pod: it was deleted, or lost its logical port.
func (x *Index) RemovePod(k pod.Key) []nb.Unit {
	m := x.members[k]
	if m == nil {
		return nil
	}
	delete(x.members, k)
	n := m.class.ns
	x.leave(m)
	x.forgetIfEmpty(n)
	return x.flush()
}

// PutPolicy records a policy.
func (x *Index) PutPolicy(p Policy) []nb.Unit {
	old := x.policies[p.Key]
	if old != nil && old.Policy.equal(p) {
		old.UID = p.UID
		return nil
	}
	n := x.namespace(p.Namespace)
	x.install(n, old, &p)
	x.touch(p.Unit())
	if n.logging.on() {
		x.touch(LoggingUnit)
	}
	return x.flush()
}

// RemovePolicy forgets a policy.
func (x *Index) RemovePolicy(k Key) []nb.Unit {
	old := x.policies[k]
	if old == nil {
		return nil
	}
	n := x.namespaces[k.Namespace]
	delete(x.policies, k)
	x.install(n, old, nil)
	x.forgetIfEmpty(n)
	x.touch(k.Unit())
	if n.logging.on() {
		x.touch(LoggingUnit)
	}
	return x.flush()
}

// Pods lists the pods with logical ports.
func (x *Index) Pods() iter.Seq[pod.Key] { return maps.Keys(x.members) }

// Units lists the units with rows.
func (x *Index) Units() []nb.Unit {
	out := make([]nb.Unit, 0, len(x.policies)+len(x.groups)+1)
	for _, p := range x.policies {
		out = append(out, p.Unit())
	}
	for _, g := range x.groups {
		out = append(out, g.unit())
	}
	if x.logs() {
		out = append(out, LoggingUnit)
	}
	return out
}

// Compact frees the memory of deleted entries.
func (x *Index) Compact() {
	x.namespaces, x.labelled = maps.Collect(maps.All(x.namespaces)), maps.Collect(maps.All(x.labelled))
	x.members, x.policies = maps.Collect(maps.All(x.members)), maps.Collect(maps.All(x.policies))
	x.census.own, x.census.ofSpace = x.census.own.clone(), x.census.ofSpace.clone()
	x.groups, x.scopes = maps.Collect(maps.All(x.groups)), maps.Collect(maps.All(x.scopes))
	for _, n := range x.namespaces {
		n.classes = maps.Collect(maps.All(n.classes))
		for _, c := range n.classes {
			c.pods = slices.Clip(slices.Clone(c.pods))
		}
	}
}

// Policy returns the policy of unit u.
func (x *Index) Policy(u nb.Unit) (Policy, bool) {
	k, ok := KeyOf(u)
	s := x.policies[k]
	if !ok || s == nil {
		return Policy{}, false
	}
	return s.Policy, true
}

// KeyOf is the inverse of Key.Unit. It reports false for units of other kinds.
func KeyOf(u nb.Unit) (Key, bool) {
	rest, ok := strings.CutPrefix(string(u), UnitPrefix)
	ns, name, ok2 := strings.Cut(rest, "/")
	return Key{ns, name}, ok && ok2
}

// Any reports whether there is any policy.
func (x *Index) Any() bool { return len(x.policies) > 0 }

// Keys lists all policies. There may be many.
func (x *Index) Keys() []Key { return slices.Collect(maps.Keys(x.policies)) }

// Namespaces lists the existing namespaces.
func (x *Index) Namespaces() []string {
	var out []string
	for name, n := range x.namespaces {
		if n.known {
			out = append(out, name)
		}
	}
	return out
}
