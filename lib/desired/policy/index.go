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
// and other pods' units the same Refs, as before. Settle follows the last one of several
// changes. The cost of a change depends on the number of selectors and pods concerned, not
// on the size of the cluster.
type Index struct {
	members  map[pod.Key]*member
	spaces   *spaces
	census   *census
	groups   *groups
	policies *policies
	touched  *touched
}

// touched are the units touched by a change.
type touched struct{ units []nb.Unit }

func (t *touched) add(u nb.Unit) { t.units = append(t.units, u) }

// take returns the units touched since the last call.
func (t *touched) take() []nb.Unit {
	out := t.units
	t.units = nil
	return out
}

// pending are the policies that a change of counts or ports affects, until the change is complete.
type pending struct {
	unpriced  map[*state]bool     // to be compared with the limits again
	unsettled map[*state]bool     // with named ports to be compared with their limits
	sets      map[*numbers]*group // whose port groups may come or go
	limited   map[*namespace]bool // with a limit to be applied
	changed   map[*namespace]bool // the same at the end of all changes: see Settle
}

// NewIndex returns an empty index.
func NewIndex() *Index { return newIndex(defaultLimits()) }

func newIndex(l limits) *Index {
	t, all := &touched{}, newSpaces()
	later := &pending{map[*state]bool{}, map[*state]bool{}, map[*numbers]*group{}, map[*namespace]bool{}, map[*namespace]bool{}}
	c := newCensus(l.unit, all, later)
	g := &groups{all: map[string]*group{}, nameBytes: l.nameBytes, census: c, spaces: all, pending: later, touched: t}
	return &Index{
		members: map[pod.Key]*member{}, spaces: all, census: c, groups: g, touched: t,
		policies: &policies{all: map[Key]*state{}, planner: planner{l, c}, groups: g, spaces: all, pending: later, touched: t},
	}
}

// flush applies the consequences of a change, and returns the units touched since the
// last flush.
func (x *Index) flush() []nb.Unit {
	x.policies.settle()
	return x.touched.take()
}

// Settle applies the limits of namespaces with changed policies, and returns the units touched.
func (x *Index) Settle() []nb.Unit {
	for n := range x.policies.pending.changed {
		x.policies.limitNamespace(n)
	}
	return x.flush()
}

// PutNamespace records a namespace.
func (x *Index) PutNamespace(o *corev1.Namespace) []nb.Unit {
	n := x.spaces.namespace(o.Name)
	x.relog(n, newLogging(o.Annotations[names.ACLLogging]))
	if l := newLabels(o.Labels); !n.known || !slices.Equal(l, n.labels) {
		x.relabel(n, true, l)
	}
	return x.flush()
}

// RemoveNamespace forgets a namespace.
func (x *Index) RemoveNamespace(name string) []nb.Unit {
	n := x.spaces.all[name]
	if n == nil || !n.known {
		return nil
	}
	x.relog(n, logging{})
	x.relabel(n, false, nil)
	x.spaces.forgetIfEmpty(n)
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
	n := x.spaces.namespace(k.Namespace)
	c := n.classes[text]
	if c == nil {
		c = &class{ns: n, text: text, labels: l, ports: ports}
		n.classes[text] = c
		x.census.enlist(c)
		x.groups.regroup(c)
	}
	m.class, m.at = c, len(c.pods)
	c.pods = append(c.pods, m)
	x.census.tallyPod(c, 1)
	if !slices.Equal(before, m.refs()) {
		x.touched.add(k.Unit())
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
	x.spaces.forgetIfEmpty(n)
	return x.flush()
}

// PutPolicy records a policy.
func (x *Index) PutPolicy(p Policy) []nb.Unit {
	old := x.policies.all[p.Key]
	if old != nil && old.Policy.equal(p) {
		old.UID = p.UID
		return nil
	}
	n := x.spaces.namespace(p.Namespace)
	x.policies.install(n, old, &p)
	x.touched.add(p.Unit())
	if n.logging.on() {
		x.touched.add(LoggingUnit)
	}
	return x.flush()
}

// RemovePolicy forgets a policy.
func (x *Index) RemovePolicy(k Key) []nb.Unit {
	old := x.policies.all[k]
	if old == nil {
		return nil
	}
	n := x.spaces.all[k.Namespace]
	delete(x.policies.all, k)
	x.policies.install(n, old, nil)
	x.spaces.forgetIfEmpty(n)
	x.touched.add(k.Unit())
	if n.logging.on() {
		x.touched.add(LoggingUnit)
	}
	return x.flush()
}

// Pods lists the pods with logical ports.
func (x *Index) Pods() iter.Seq[pod.Key] { return maps.Keys(x.members) }

// Units lists the units with rows.
func (x *Index) Units() []nb.Unit {
	out := make([]nb.Unit, 0, len(x.policies.all)+len(x.groups.all)+1)
	for _, p := range x.policies.all {
		out = append(out, p.Unit())
	}
	for _, g := range x.groups.all {
		if !g.scope.refused {
			out = append(out, g.unit())
		}
	}
	for _, n := range x.spaces.all {
		if n.refused != nil {
			out = append(out, n.refusedUnit())
		}
	}
	if x.spaces.logs() {
		out = append(out, LoggingUnit)
	}
	return out
}

// Compact frees the memory of deleted entries.
func (x *Index) Compact() {
	x.spaces.compact()
	x.census.compact()
	x.members, x.policies.all, x.groups.all = maps.Collect(maps.All(x.members)), maps.Collect(maps.All(x.policies.all)), maps.Collect(maps.All(x.groups.all))
}

// Policy returns the policy of unit u.
func (x *Index) Policy(u nb.Unit) (Policy, bool) {
	k, ok := KeyOf(u)
	s := x.policies.all[k]
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
func (x *Index) Any() bool { return len(x.policies.all) > 0 }

// Keys lists all policies. There may be many.
func (x *Index) Keys() []Key { return slices.Collect(maps.Keys(x.policies.all)) }

// Namespaces lists the existing namespaces.
func (x *Index) Namespaces() []string {
	var out []string
	for name, n := range x.spaces.all {
		if n.known {
			out = append(out, name)
		}
	}
	return out
}
