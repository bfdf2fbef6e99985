package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// An Index is the latest of all that policies depend on, and who is selected by
// what.
//
// Each change returns the units that it touches: a unit that no change returned
// has the same Rows, and a pod's unit the same Refs, as before. What a change
// costs depends on how many selectors and pods it concerns, not on how many
// there are.
type Index struct {
	namespaces map[string]*namespace
	labelled   map[label][]*namespace
	scopes     map[string]*scope // of selectors of namespaces, by their text
	selecting  index[*scope]     // the same, by what they need
	members    map[pod.Key]*member
	policies   map[Key]*state
	groups     map[string]*group // by name
	touched    []nb.Unit
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{
		namespaces: map[string]*namespace{}, labelled: map[label][]*namespace{}, scopes: map[string]*scope{},
		members: map[pod.Key]*member{}, policies: map[Key]*state{}, groups: map[string]*group{},
	}
}

// A namespace is one that exists, or that something refers to.
type namespace struct {
	name     string
	known    bool // to Kubernetes: else no selector of namespaces matches it
	labels   labels
	logging  logging
	classes  map[string]*class // by what their pods have in common
	own      *scope            // this namespace only; nil if no selector has it
	matching []*scope          // the selectors of namespaces that match it
	policies []*state
}

// A class is the pods of a namespace that no selector can tell from each other.
type class struct {
	ns     *namespace
	text   string
	labels labels
	ports  []Port
	groups []*group
	pods   []*member
}

// A member is a pod that has a logical port.
type member struct {
	pod.Key
	class *class
	at    int // in class.pods
}

// A scope is where a selector of pods looks for them: in one namespace, or in
// all whose labels match.
type scope struct {
	ns         *namespace // nil: namespaces that match
	matches    labelSelector
	namespaces map[*namespace]bool // that match
	groups     index[*group]
	size       int // groups
}

// text names the scope: unambiguous, since no namespace has a space in its name.
func (s *scope) text() string {
	switch {
	case s.ns != nil:
		return "in namespace " + s.ns.name
	case len(s.matches.needs) == 0:
		return "in all namespaces"
	}
	return "in namespaces with " + s.matches.String()
}

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

// A state is a policy and the groups that it refers to.
type state struct {
	Policy
	subject *group
	rules   []boundRule
}

// A boundRule is a rule, and the groups of its peers. A rule for anyone that
// names ports of containers has one more group: everybody's.
type boundRule struct {
	rule
	peers []*group
}

func (x *Index) touch(u nb.Unit) { x.touched = append(x.touched, u) }

func (x *Index) touchClass(c *class) {
	for _, m := range c.pods {
		x.touch(m.Unit())
	}
}

// flush returns what was touched since the last time.
func (x *Index) flush() []nb.Unit {
	out := x.touched
	x.touched = nil
	return out
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

// relog gives the policies of a namespace another logging.
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

// relabel gives a namespace other labels, and its pods the groups that follow.
func (x *Index) relabel(n *namespace, known bool, l labels) {
	for _, old := range n.labels {
		drop(x.labelled, old, n)
	}
	n.known, n.labels = known, l
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

// regroup finds out which groups a class is in.
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
	changed := false
	for _, g := range c.groups {
		if !slices.Contains(now, g) {
			x.count(g, c, -1)
			changed = true
		}
	}
	for _, g := range now {
		if !slices.Contains(c.groups, g) {
			x.count(g, c, 1)
			changed = true
		}
	}
	c.groups = now
	if changed {
		x.touchClass(c)
	}
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

// PutPod records a pod that has a logical port: its labels, and the named ports
// of its containers.
func (x *Index) PutPod(k pod.Key, podLabels map[string]string, ports []Port) []nb.Unit {
	l := newLabels(podLabels)
	text := classText(l, ports)
	m := x.members[k]
	if m != nil && m.class.text == text {
		return nil
	}
	before := x.Refs(k)
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
		x.regroup(c)
	}
	m.class, m.at = c, len(c.pods)
	c.pods = append(c.pods, m)
	if !slices.Equal(before, x.Refs(k)) {
		x.touch(k.Unit())
	}
	return x.flush()
}

// classText is what the pods of a class have in common.
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

// RemovePod forgets a pod, or that it has a port.
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

// leave takes m out of its class, which goes with its last pod.
func (x *Index) leave(m *member) {
	c := m.class
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
}

// PutPolicy records a policy.
func (x *Index) PutPolicy(p Policy) []nb.Unit {
	old := x.policies[p.Key]
	if old != nil && old.Policy.equal(p) {
		old.UID = p.UID
		return nil
	}
	n := x.namespace(p.Namespace)
	s := x.bind(n, p)
	x.policies[p.Key] = s
	n.policies = append(n.policies, s)
	if old != nil { // after bind, so that what both use stays
		x.unbind(n, old)
	}
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
	x.unbind(n, old)
	x.forgetIfEmpty(n)
	x.touch(k.Unit())
	if n.logging.on() {
		x.touch(LoggingUnit)
	}
	return x.flush()
}

// bind finds or makes the groups of a policy.
func (x *Index) bind(n *namespace, p Policy) *state {
	s := &state{Policy: p}
	s.subject = x.use(peer{pods: p.subject}, n)
	s.subject.policies = append(s.subject.policies, s)
	for d, yes := range p.isolates {
		if yes {
			x.isolate(s.subject, direction(d), 1)
		}
	}
	for _, r := range p.rules {
		b := boundRule{rule: r}
		for _, from := range r.peers {
			b.peers = append(b.peers, x.use(from, n))
		}
		if r.anyone && r.dir == egress && len(r.named) > 0 {
			b.peers = append(b.peers, x.use(peer{everywhere: true}, n))
		}
		for _, g := range b.resolvers(s) {
			for _, port := range r.named {
				x.resolve(g, port, s)
			}
		}
		s.rules = append(s.rules, b)
	}
	return s
}

// unbind is the opposite of bind.
func (x *Index) unbind(n *namespace, s *state) {
	n.policies = without(n.policies, s)
	for _, b := range s.rules {
		for _, g := range b.resolvers(s) {
			for _, port := range b.named {
				x.unresolve(g, port, s)
			}
		}
		for _, g := range b.peers {
			x.disuse(g)
		}
	}
	for d, yes := range s.isolates {
		if yes {
			x.isolate(s.subject, direction(d), -1)
		}
	}
	s.subject.policies = without(s.subject.policies, s)
	x.disuse(s.subject)
}

// resolvers are the groups whose pods say what number a named port has: the
// pods that are connected to.
func (r *boundRule) resolvers(s *state) []*group {
	if r.dir == ingress {
		return []*group{s.subject}
	}
	return r.peers
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

func (x *Index) scopeOf(from peer, n *namespace) *scope {
	if !from.everywhere {
		if n.own == nil {
			n.own = &scope{ns: n}
		}
		return n.own
	}
	text := from.namespaces.String()
	s := x.scopes[text]
	if s == nil {
		s = &scope{matches: from.namespaces, namespaces: map[*namespace]bool{}}
		x.scopes[text] = s
		x.selecting.add(s.matches, s)
		x.eachMatching(s.matches, func(n *namespace) {
			s.namespaces[n] = true
			n.matching = append(n.matching, s)
		})
	}
	return s
}

func (x *Index) forgetScope(s *scope) {
	if s.ns != nil {
		s.ns.own = nil
		return // whoever uses the namespace looks whether it is empty
	}
	delete(x.scopes, s.matches.String())
	x.selecting.remove(s.matches, s)
	for n := range s.namespaces {
		n.matching = without(n.matching, s)
	}
}

// eachMatching calls f with each namespace that matches s.
func (x *Index) eachMatching(s labelSelector, f func(*namespace)) {
	try := func(n *namespace) {
		if n.known && s.matches(n.labels) {
			f(n)
		}
	}
	if byLabel, _ := s.places(); byLabel != nil {
		for _, l := range byLabel {
			for _, n := range x.labelled[l] {
				try(n)
			}
		}
		return
	}
	for _, n := range x.namespaces {
		try(n)
	}
}

// eachClass calls f with each class of the namespaces of a scope.
func (x *Index) eachClass(s *scope, f func(*class)) {
	if s.ns != nil {
		for _, c := range s.ns.classes {
			f(c)
		}
		return
	}
	for n := range s.namespaces {
		for _, c := range n.classes {
			f(c)
		}
	}
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

// Refs are the port groups that a pod's logical port belongs to.
func (x *Index) Refs(k pod.Key) []nb.Ref {
	m := x.members[k]
	if m == nil {
		return nil
	}
	var out []nb.Ref
	for _, g := range m.class.groups {
		out = append(out, portGroup(g.name, "ports"))
		for _, n := range g.named {
			if number, ok := n.of(m.class); ok {
				out = append(out, portGroup(g.numbered(n.namedPort, number), "ports"))
			}
		}
	}
	slices.SortFunc(out, func(a, b nb.Ref) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func portGroup(name, column string) nb.Ref {
	return nb.Ref{Table: nbdb.PortGroupTable, ID: name, Column: column}
}

// numbered is the name of the port group of the pods of g whose named port has a
// number: np_0123456789abcdef_tcp_http_8080. Names of ports have no underscores.
func (g *group) numbered(p namedPort, number uint16) string {
	return fmt.Sprintf("%s_%s_%s_%d", g.name, keyword(p.proto), strings.ReplaceAll(p.name, "-", "_"), number)
}

// Units lists the units that have rows.
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

// Compact gives back the room of what is gone.
func (x *Index) Compact() {
	x.namespaces, x.labelled = maps.Collect(maps.All(x.namespaces)), maps.Collect(maps.All(x.labelled))
	x.members, x.policies = maps.Collect(maps.All(x.members)), maps.Collect(maps.All(x.policies))
	x.groups, x.scopes = maps.Collect(maps.All(x.groups)), maps.Collect(maps.All(x.scopes))
	for _, n := range x.namespaces {
		n.classes = maps.Collect(maps.All(n.classes))
		for _, c := range n.classes {
			c.pods = slices.Clip(slices.Clone(c.pods))
		}
	}
}

// Policy returns the policy that is unit u.
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

// Keys lists all policies, of which there may be many.
func (x *Index) Keys() []Key { return slices.Collect(maps.Keys(x.policies)) }

// Namespaces lists the namespaces that were put.
func (x *Index) Namespaces() []string {
	var out []string
	for name, n := range x.namespaces {
		if n.known {
			out = append(out, name)
		}
	}
	return out
}
