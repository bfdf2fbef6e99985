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

	"ovn-k8s/lib/desired/acl"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Priorities of ACLs. Packets without a matching ACL are allowed.
const (
	denyPriority  = 1000
	allowPriority = 1001
)

// Rows returns the rows of a policy, a group or LoggingUnit: none if it is gone.
// problem describes the parts of a policy without effect, "" if there are none.
func (x *Index) Rows(u nb.Unit) (rows []nb.Row, problem string) {
	if u == LoggingUnit {
		return x.loggingRows(), ""
	}
	if name, ok := strings.CutPrefix(string(u), refusedPrefix); ok {
		if n := x.spaces.all[name]; n != nil && n.refused != nil {
			return n.refusedRows(), ""
		}
		return nil, ""
	}
	if name, ok := strings.CutPrefix(string(u), GroupPrefix); ok {
		if g := x.groups.all[name]; g != nil {
			return g.rows(), ""
		}
		return nil, ""
	}
	k, ok := KeyOf(u)
	s := x.policies.all[k]
	if !ok || s == nil {
		return nil, ""
	}
	log := x.spaces.all[s.Namespace].logging
	problems := slices.Clone(s.Problems)
	problems = append(problems, s.notHonoured(x.policies.planner.limits)...)
	for _, r := range s.rules {
		for _, way := range s.ways(r) {
			id := s.Namespace + "/" + s.Name + "/" + r.dir.String() + "/" + strconv.Itoa(r.index)
			spec := acl.Spec{Name: id, Direction: r.dir.column(), Match: way.match, Priority: allowPriority, Action: nbdb.ACLActionAllowRelated, Severity: log.allow}
			if way.group != s.subject.name {
				id += "/" + strings.TrimPrefix(way.group, s.subject.name+"_")
			}
			if way.part != "" {
				id += "/" + way.part
			}
			rows = append(rows, acl.Row(id, spec, []nb.Ref{portGroup(way.group, "acls")}))
		}
		problems = append(problems, s.unresolved(r)...)
	}
	if log.problem != "" {
		problems = append(problems, "namespace "+s.Namespace+": "+log.problem)
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return rows, strings.Join(problems, "; ")
}

// unresolved reports named ports that no pod has, unless there are no pods.
func (s *state) unresolved(r boundRule) (problems []string) {
	for _, port := range r.named {
		pods, known := 0, 0
		for _, g := range r.resolvers(s) {
			pods += g.classes
			known += g.named[r.names].have[port]
		}
		if pods > 0 && known == 0 {
			problems = append(problems, fmt.Sprintf("spec.%s[%d].ports: no pod has a container port named %q for %s: nothing is allowed by it", r.dir, r.index, port.name, port.proto))
		}
	}
	return problems
}

// rows returns the port groups of g, and the ACLs that deny by default.
func (g *group) rows() []nb.Row {
	pods := g.summary()
	rows := []nb.Row{portGroupRow(g.name, pods)}
	for _, n := range g.named {
		for _, set := range n.sets {
			if set.live {
				rows = append(rows, portGroupRow(set.group, set.describe(pods, n)))
			}
		}
	}
	slices.SortFunc(rows, func(a, b nb.Row) int { return strings.Compare(a.ID, b.ID) })
	for d, n := range g.subjects {
		if n == 0 {
			continue
		}
		rows = append(rows, g.scope.ns.deny(direction(d), g.name, cmp.Or(g.pods.String(), "all pods")))
	}
	return rows
}

// deny returns the ACL of a port group in n that denies by default.
func (n *namespace) deny(d direction, group, pods string) nb.Row {
	end := "/" + d.String() + "/deny"
	return acl.Row(group+end, acl.Spec{
		Name: n.name + "/" + pods + end, Direction: d.column(), Match: portIn(d, group) + " && ip", Priority: denyPriority, Action: nbdb.ACLActionDrop, Severity: n.logging.deny,
	}, []nb.Ref{portGroup(group, "acls")})
}

func portGroupRow(name, pods string) nb.Row {
	return nb.Row{Table: nbdb.PortGroupTable, ID: name, Model: &nbdb.PortGroup{Name: name, ExternalIDs: map[string]string{names.Selector: pods}}}
}

// portIn matches packets from (egress) or to (ingress) the pods of a port group.
func portIn(d direction, name string) string {
	return [...]string{ingress: "outport", egress: "inport"}[d] + " == @" + name
}

// A way is a match for packets allowed by a rule, from or to a port group: all of them,
// or those of a part. OVN does not know the name of a port group on switches without any
// of its ports, so each group has matches, and ACLs, of its own.
type way struct{ group, part, match string }

// ways lists the matches of a rule, without impossible ones.
func (s *state) ways(r boundRule) (out []way) {
	if s.choked != "" {
		return nil
	}
	add := func(group, part string, match ...string) {
		if m := acl.And(append([]string{portIn(r.dir, group)}, match...)...); m != "" {
			out = append(out, way{group, part, m})
		}
	}
	var rest []string
	gather := func(parts []part, prefix string) {
		for _, p := range parts {
			if p.name == "" {
				rest = append(rest, acl.And(p.peers, p.ports))
			} else {
				add(s.subject.name, prefix+p.name, p.ports, p.peers)
			}
		}
	}
	if r.dir == egress {
		gather(r.parts(r.ports), "")
		for _, set := range r.egressSets(s) {
			gather(set.parts, set.name+"/")
		}
		add(s.subject.name, "", acl.Or(rest))
		return out
	}
	for _, p := range r.parts(r.ports) {
		add(s.subject.name, p.name, p.ports, p.peers)
	}
	if n := s.subject.named[r.names]; n != nil {
		for _, text := range slices.Sorted(maps.Keys(n.sets)) {
			for _, p := range r.parts(n.sets[text].ports) {
				add(n.sets[text].group, p.name, p.ports, p.peers)
			}
		}
	}
	return out
}

// A part matches some ports, by number, of some peers: "*" is all.
type part struct{ name, ports, peers string }

// Rules have parts if they have more ports than fewPorts, or more subnets than fewBlocks
// and several ports.
const (
	fewPorts  = 4
	fewBlocks = 100
)

// parts splits a rule with many ports by family and protocol. A match with one of each
// becomes about as many flows as it has ports and addresses together (ovs-fields(7),
// "conjunction"), but one with several becomes a flow for each port of each address, in
// every ovn-controller.
func (r *boundRule) parts(ports []portRange) []part {
	switch {
	case r.anything:
		return []part{{"", acl.Everything, r.match()}}
	case len(ports) == 0:
		return nil
	case r.anyone || !many(ports, len(r.blocks)):
		return []part{{"", acl.Or(portTerms(ports)), r.match()}}
	}
	t, field := r.terms()
	return partsOf(&t, field, ports)
}

// many reports whether a rule with these ports and this number of subnets needs parts.
func many(ports []portRange, blocks int) bool {
	return len(ports) > fewPorts || len(ports) > 1 && blocks > fewBlocks
}

// partsOf returns one part for each family and protocol.
func partsOf(t *acl.Terms, field string, ports []portRange) (out []part) {
	lists := map[corev1.Protocol][]portRange{}
	for _, p := range ports {
		lists[p.proto] = append(lists[p.proto], p)
	}
	sides := t.Sides(field)
	for _, proto := range protocols() {
		if len(lists[proto]) == 0 {
			continue
		}
		match := acl.Or(portTerms(lists[proto]))
		for _, peers := range sides {
			out = append(out, part{peers.Family + "/" + keyword(proto), match, peers.Match})
		}
	}
	return out
}

// An egressSet matches packets to those peers of a rule whose named ports have the same
// numbers.
type egressSet struct {
	name  string // different for each set of numbers
	parts []part
}

func (r *boundRule) egressSets(s *state) (out []egressSet) {
	ports, groups := map[string][]portRange{}, map[string]*acl.Terms{}
	for _, g := range r.peers {
		n := g.named[r.names]
		if n == nil {
			continue
		}
		for text, set := range n.sets {
			if !s.counts(n, set) {
				continue
			}
			if groups[text] == nil {
				ports[text], groups[text] = set.ports, &acl.Terms{}
			}
			groups[text].Group(set.group)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(groups)) {
		sum := sha256.Sum256([]byte(text))
		set := egressSet{name: hex.EncodeToString(sum[:16])}
		if t := groups[text]; many(ports[text], 0) {
			set.parts = partsOf(t, "dst", ports[text])
		} else {
			set.parts = []part{{"", acl.Or(portTerms(ports[text])), acl.Or(t.List("dst"))}}
		}
		out = append(out, set)
	}
	return out
}

// match matches packets from or to the peers of a rule.
func (r *boundRule) match() string {
	if r.anyone && r.anything {
		return "ip"
	}
	if r.anyone {
		return acl.Everything
	}
	t, field := r.terms()
	return acl.Or(t.List(field))
}

// terms returns the addresses of the peers, and the packets' field to compare with them.
func (r *boundRule) terms() (t acl.Terms, field string) {
	for _, g := range r.peers {
		t.Group(g.name)
	}
	for _, b := range r.blocks {
		t.Add(b)
	}
	return t, [...]string{ingress: "src", egress: "dst"}[r.dir]
}
