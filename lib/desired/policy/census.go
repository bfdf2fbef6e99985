package policy

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A census counts pods by label. It bounds the number of pods selected by a
// selector, and so the members of a port group before the group exists.
type census struct {
	unit       int // the step of small counts
	pods       count
	namespaces count // counts namespaces, not pods
	own        *traits
	ofSpace    *traits // by the labels of the pods' namespace
	spaces     *spaces
	pending    *pending // the policies that depend on counts
}

// traits count by label and by key.
type traits struct {
	unit    int
	byLabel map[label]*count
	byKey   map[string]*count
}

// A count is a number of pods, with the policies that depend on it.
type count struct {
	pods    int
	classes []*class // of the census of pods' own labels only
	payers  []*state // their prices depend on the rounded count
}

func newCensus(unit int, all *spaces, later *pending) *census {
	return &census{unit: unit, own: newTraits(unit), ofSpace: newTraits(unit), spaces: all, pending: later}
}

func newTraits(unit int) *traits { return &traits{unit, map[label]*count{}, map[string]*count{}} }

// rounded returns the count rounded up to unit × 2^n. Prices depend on rounded
// counts, so few pods change them.
func (c *count) rounded(unit int) int {
	if c == nil || c.pods == 0 {
		return 0
	}
	n := unit
	for n < c.pods {
		n *= 2
	}
	return n
}

// tally adds to a count. It reports whether the rounded count differs.
func (x *census) tally(c *count, by int) bool {
	before := c.rounded(x.unit)
	if c.pods += by; c.rounded(x.unit) == before {
		return false
	}
	for _, s := range c.payers {
		x.pending.unpriced[s] = true
	}
	return true
}

// tallyTotal adds to a count of the whole cluster.
func (x *census) tallyTotal(c *count, by int) {
	if x.tally(c, by) {
		for _, n := range x.spaces.all {
			x.unprice(n)
		}
	}
}

// unprice marks the priced policies of a namespace for another comparison with the limits.
func (x *census) unprice(n *namespace) {
	for _, s := range n.policies {
		if s.priced {
			x.pending.unpriced[s] = true
		}
	}
}

// tallyAll adds to the counts of each label of l, and of its key.
func (x *census) tallyAll(t *traits, l labels, by int) {
	for i := range l {
		x.tally(t.label(l[i]), by)
		x.tally(t.key(l[i].key), by)
		t.tidy(l[i])
	}
}

// tallyPod counts a pod of class c.
func (x *census) tallyPod(c *class, by int) {
	x.tallyTotal(&x.pods, by)
	x.tallyAll(x.own, c.labels, by)
	x.tallyAll(x.ofSpace, c.ns.labels, by)
	if x.tally(&c.ns.pods, by) {
		x.unprice(c.ns)
	}
}

func (t *traits) label(l label) *count {
	c := t.byLabel[l]
	if c == nil {
		c = &count{}
		t.byLabel[l] = c
	}
	return c
}

func (t *traits) key(k string) *count {
	c := t.byKey[k]
	if c == nil {
		c = &count{}
		t.byKey[k] = c
	}
	return c
}

// tidy deletes the counts of a label if they are zero and nothing depends on them.
func (t *traits) tidy(l label) {
	if c := t.byLabel[l]; c != nil && c.idle() {
		delete(t.byLabel, l)
	}
	if c := t.byKey[l.key]; c != nil && c.idle() {
		delete(t.byKey, l.key)
	}
}

func (c *count) idle() bool {
	return c.pods == 0 && len(c.classes) == 0 && len(c.payers) == 0
}

// compact frees the memory of deleted entries. Watches refer to t.
func (t *traits) compact() {
	t.byLabel, t.byKey = maps.Collect(maps.All(t.byLabel)), maps.Collect(maps.All(t.byKey))
}

// compact frees the memory of deleted entries.
func (x *census) compact() {
	x.own.compact()
	x.ofSpace.compact()
}

// enlist adds a class to the lists of its labels.
func (x *census) enlist(c *class) {
	c.at = make([][2]int, len(c.labels))
	for i, l := range c.labels {
		for j, list := range []*count{x.own.label(l), x.own.key(l.key)} {
			c.at[i][j] = len(list.classes)
			list.classes = append(list.classes, c)
		}
	}
}

// delist is the opposite of enlist.
func (x *census) delist(c *class) {
	for i, l := range c.labels {
		for j, list := range []*count{x.own.label(l), x.own.key(l.key)} {
			last := len(list.classes) - 1
			moved, at := list.classes[last], c.at[i][j]
			list.classes[at] = moved
			moved.at[moved.labels.index(l.key)][j] = at
			list.classes[last] = nil
			list.classes = list.classes[:last]
		}
		x.own.tidy(l)
	}
}

// listed returns the shortest lists with all candidate classes of s, each class
// once. It reports false if s requires no label, or one with more values than the
// scope has classes: each rule with named ports would look up all values.
func (x *census) listed(s labelSelector, in *scope) (lists [][]*class, total int, ok bool) {
	for _, r := range s.needs {
		var now [][]*class
		switch r.op {
		case metav1.LabelSelectorOpIn:
			if len(r.values) > 1 && in.fewer(len(r.values)) {
				continue
			}
			for _, v := range r.values {
				if c := x.own.byLabel[label{r.key, v}]; c != nil {
					now = append(now, c.classes)
				}
			}
		case metav1.LabelSelectorOpExists:
			if c := x.own.byKey[r.key]; c != nil {
				now = append(now, c.classes)
			}
		default:
			continue
		}
		n := 0
		for _, l := range now {
			n += len(l)
		}
		if !ok || n < total {
			lists, total, ok = now, n, true
		}
	}
	return lists, total, ok
}

// atMost returns an upper bound of the number of pods selected, from the requirements
// that name a label or a key. all is the number of pods.
func (t *traits) atMost(s labelSelector, all int) int {
	for _, r := range s.needs {
		n := 0
		switch r.op {
		case metav1.LabelSelectorOpIn:
			for _, v := range r.values {
				n += t.byLabel[label{r.key, v}].rounded(t.unit)
			}
		case metav1.LabelSelectorOpExists:
			n = t.byKey[r.key].rounded(t.unit)
		default:
			continue
		}
		all = min(all, n)
	}
	return all
}

// watches lists the counts in the price of a policy with selector s: those of labels required by s.
func (t *traits) watches(s labelSelector) (out []watch) {
	for _, r := range s.needs {
		switch r.op {
		case metav1.LabelSelectorOpIn:
			for _, v := range r.values {
				l := label{r.key, v}
				out = append(out, watch{t.label(l), t, l})
			}
		case metav1.LabelSelectorOpExists:
			out = append(out, watch{t.key(r.key), t, label{key: r.key}})
		}
	}
	return out
}

// A watch is a count with a policy's price depending on it.
type watch struct {
	*count
	of    *traits
	label label
}

func (w watch) start(s *state) { w.payers = append(w.payers, s) }

func (w watch) stop(s *state) {
	w.payers = without(w.payers, s)
	w.of.tidy(w.label)
}
