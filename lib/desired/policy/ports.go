package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/acl"
)

// numbers resolve the named ports of a rule among the pods of a group. Each set of
// port numbers has a port group of its own.
type numbers struct {
	names []namedPort // sorted
	text  string      // of names
	users []*state    // once for each rule
	sets  map[string]*portSet
	have  map[namedPort]int // number of classes with such a port
	ports int               // in all sets

	spaces map[*namespace]*spaceSets
	ranked bool              // rank was called after the latest change
	upTo   [everywhere]tally // by rank: the sets with this or a smaller one
	reach  int               // the largest of the users
	tight  bool              // a user leaves out sets
}

// A portSet is the set of numbers of the names in some pods.
type portSet struct {
	group   string // name of the port group
	ports   []portRange
	classes int  // with these ports
	rank    int  // see numbers.rank
	live    bool // within the reach of a user: there is a port group
}

// has reports whether a port is in the set.
func (s *portSet) has(proto corev1.Protocol, port uint16) bool {
	return slices.ContainsFunc(s.ports, func(r portRange) bool { return r.proto == proto && r.from <= port && port <= r.to })
}

// of returns the ports of c with one of the names, and the text of their numbers.
func (n *numbers) of(c *class) (found []Port, text string) {
	if len(n.names) < len(c.ports) {
		for _, name := range n.names {
			if i, ok := slices.BinarySearchFunc(c.ports, name, comparePort); ok {
				found = append(found, c.ports[i])
			}
		}
	} else {
		for _, p := range c.ports {
			name := namedPort{p.Protocol, p.Name}
			if _, ok := slices.BinarySearchFunc(n.names, name, compareNamed); ok {
				found = append(found, p)
			}
		}
	}
	var b []byte
	for _, r := range rangesOf(found) {
		b = append(append(b, r.proto...), '/')
		b = strconv.AppendInt(b, int64(r.from), 10)
		b = append(strconv.AppendInt(append(b, '-'), int64(r.to), 10), ' ')
	}
	return found, string(b)
}

func comparePort(p Port, name namedPort) int {
	return compareNamed(namedPort{p.Protocol, p.Name}, name)
}

func compareNamed(a, b namedPort) int {
	return cmp.Or(strings.Compare(string(a.proto), string(b.proto)), strings.Compare(a.name, b.name))
}

func rangesOf(ports []Port) []portRange {
	out := make([]portRange, len(ports))
	for i, p := range ports {
		out[i] = portRange{p.Protocol, p.Number, p.Number}
	}
	return merged(out)
}

// merged joins ranges that overlap or adjoin, and sorts them.
func merged(ranges []portRange) []portRange {
	slices.SortFunc(ranges, func(a, b portRange) int {
		return cmp.Or(strings.Compare(string(a.proto), string(b.proto)), cmp.Compare(a.from, b.from))
	})
	var out []portRange
	for _, r := range ranges {
		if last := len(out) - 1; last >= 0 && out[last].proto == r.proto && int(r.from) <= int(out[last].to)+1 {
			out[last].to = max(out[last].to, r.to)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// resolve registers s with the named ports of its rule r, in each group to resolve them in. Whether a user leaves out sets is
// decided again, even if s comes with its final reach.
func (x *groups) resolve(s *state, r *boundRule) {
	if len(r.named) == 0 {
		return
	}
	for _, g := range r.resolvers(s) {
		if n := g.named[r.names]; n != nil {
			n.users = append(n.users, s)
			x.pending.sets[n] = g
			continue
		}
		n := &numbers{names: r.named, text: r.names, users: []*state{s}, sets: map[string]*portSet{}, have: map[namedPort]int{}, spaces: map[*namespace]*spaceSets{}, reach: nowhere}
		if g.named == nil {
			g.named = map[string]*numbers{}
		}
		g.named[r.names], x.pending.sets[n] = n, g
		x.eachMember(g, func(c *class) { x.countPorts(g, n, c, 1) })
	}
}

// unresolve is the opposite of resolve.
func (x *groups) unresolve(s *state, r *boundRule) {
	if len(r.named) == 0 {
		return
	}
	for _, g := range r.resolvers(s) {
		n := g.named[r.names]
		if n.users = without(n.users, s); len(n.users) > 0 {
			x.pending.sets[n] = g
			continue
		}
		delete(x.pending.sets, n)
		live := map[*portSet]bool{}
		for _, set := range n.sets {
			if set.live {
				live[set] = true
			}
		}
		x.touchSets(g, n, live)
		x.eachMember(g, func(c *class) { delete(c.sets, n) })
		delete(g.named, r.names)
	}
}

func textOf(named []namedPort) string {
	var b strings.Builder
	for i, p := range named {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.name + "/" + keyword(p.proto))
	}
	return b.String()
}

// countPorts records that a class entered a group (1) or left it (-1).
func (x *groups) countPorts(g *group, n *numbers, c *class, by int) {
	found, text := n.of(c)
	if len(found) == 0 {
		return
	}
	changed := false
	for _, p := range found {
		name := namedPort{p.Protocol, p.Name}
		n.have[name] += by
		if now := n.have[name]; now == 0 || now == by {
			changed = true
		}
		if n.have[name] == 0 {
			delete(n.have, name)
		}
	}
	set := n.sets[text]
	if set == nil {
		set = &portSet{ports: rangesOf(found), live: n.reach == everywhere}
		set.group = g.numbered(n, set, text)
		n.sets[text] = set
	}
	if by > 0 {
		if c.sets == nil {
			c.sets = map[*numbers]*portSet{}
		}
		c.sets[n] = set
	} else {
		delete(c.sets, n)
	}
	if set.classes += by; set.classes == 0 {
		delete(n.sets, text)
	}
	if n.place(c.ns, set, by) && n.tight {
		changed, x.pending.sets[n] = true, g
	}
	if set.classes == 0 || set.classes == by {
		n.ports += by * len(set.ports)
		changed = true
		x.touched.add(g.unit())
	}
	if changed {
		x.touchUsers(n)
	}
}

// touchUsers touches the users of n.
func (x *groups) touchUsers(n *numbers) {
	for _, s := range n.users {
		x.touched.add(s.Unit())
		x.pending.unsettled[s] = true
	}
}

// bytes estimates the length of the match of a rule's peers.
func (r *boundRule) bytes() int { return len(r.peers)*60 + len(r.blocks)*30 }

// numbered returns the name of the port group for the pods of g with the ports set:
// np_0123456789abcdef_tcp_http_8080 for one name, np_0123456789abcdef_ and a hash for
// several. Names of ports have no underscores.
func (g *group) numbered(n *numbers, set *portSet, text string) string {
	if len(n.names) == 1 && len(set.ports) == 1 {
		p := n.names[0]
		return g.name + "_" + keyword(p.proto) + "_" + strings.ReplaceAll(p.name, "-", "_") + "_" + strconv.Itoa(int(set.ports[0].from))
	}
	sum := sha256.Sum256([]byte(n.text + " " + text))
	return g.name + "_" + hex.EncodeToString(sum[:16])
}

// describe describes those of the pods in the port group of a set.
func (s *portSet) describe(pods string, n *numbers) string {
	return fmt.Sprintf("%s, whose ports %s are %s", pods, shortened(n.text, 200), shortened(acl.Or(portTerms(s.ports)), 200))
}

// shortened returns a text of at most so many bytes unchanged, else its beginning.
func shortened(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// protocols lists the protocols of ports, in the order of parts.
func protocols() []corev1.Protocol {
	return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
}

// portTerms returns one expression for each port or range.
func portTerms(ports []portRange) []string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = portTerm(p)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func portTerm(p portRange) string {
	proto, from, to := keyword(p.proto), strconv.Itoa(int(p.from)), strconv.Itoa(int(p.to))
	switch {
	case p.from == 0:
		return proto
	case p.from == p.to:
		return proto + ".dst == " + from
	}
	return from + " <= " + proto + ".dst <= " + to
}
