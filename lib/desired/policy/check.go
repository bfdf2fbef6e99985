package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/pod"
)

// An Endpoint is one end of a connection: a pod with a logical port, or any other
// address.
type Endpoint struct {
	Pod  pod.Key    // zero: no pod, or one in its host's network
	Addr netip.Addr // in any case
}

// A Connection is described by its first packet after load balancing.
type Connection struct {
	From, To Endpoint
	Proto    corev1.Protocol // "": a protocol without ports, such as ICMP
	Port     uint16          // of To
}

// A Decision is the verdict of policies on one direction of a connection.
type Decision struct {
	Allowed bool
	Reason  string // one line: the rule that allows it, or the policies that deny it
}

// Check returns the decisions of the policies of From and of those of To on a
// connection. It takes place if both allow it.
func (x *Index) Check(c Connection) (from, to Decision) {
	return x.decide(egress, c.From, c.To, c), x.decide(ingress, c.To, c.From, c)
}

func (x *Index) decide(d direction, self, other Endpoint, c Connection) Decision {
	policies := x.isolating(d, self.Pod)
	if len(policies) == 0 {
		return Decision{true, fmt.Sprintf("%s: allowed: no policy isolates it", d)}
	}
	var names []string
	for _, s := range policies {
		for _, r := range s.rules {
			if s.choked == "" && r.dir == d && x.allows(s, &r, self, other, c) {
				return Decision{true, fmt.Sprintf("%s: allowed by policy %s, spec.%s[%d]", d, s.Key, d, r.index)}
			}
		}
		names = append(names, s.Key.String())
	}
	return Decision{false, fmt.Sprintf("%s: denied: isolated by %s, and no rule allows it", d, strings.Join(names, ", "))}
}

// isolating lists the policies that isolate a pod, sorted.
func (x *Index) isolating(d direction, k pod.Key) (out []*state) {
	m := x.members[k]
	if m == nil {
		return nil
	}
	for _, g := range m.class.groups {
		for _, s := range g.policies {
			if s.isolates[d] {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b *state) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// allows reports whether a rule of a policy of self allows a connection with other.
func (x *Index) allows(s *state, r *boundRule, self, other Endpoint, c Connection) bool {
	selected := r.anyone
	if m := x.members[other.Pod]; m != nil {
		selected = selected || slices.ContainsFunc(r.peers, func(g *group) bool { return slices.Contains(m.class.groups, g) })
	}
	within := slices.ContainsFunc(r.blocks, func(b netip.Prefix) bool { return b.Contains(other.Addr) })
	if !selected && !within {
		return false
	}
	if r.anything {
		return true
	}
	for _, p := range r.ports {
		if p.proto == c.Proto && p.from <= c.Port && c.Port <= p.to {
			return true
		}
	}
	target := self
	if r.dir == egress {
		if target = other; !selected {
			return false // a block has no containers with named ports
		}
	}
	m := x.members[target.Pod]
	return m != nil && slices.ContainsFunc(r.resolvers(s), func(g *group) bool {
		n := g.named[r.names]
		set := m.class.sets[n]
		return set != nil && s.counts(n, set) && set.has(c.Proto, c.Port)
	})
}

// A Query is a Connection in the words of a user.
type Query struct {
	From, To Party
	Proto    corev1.Protocol
	Port     uint16
}

// A Party is a pod or an address.
type Party struct {
	Pod  pod.Key
	Addr netip.Addr // valid unless it is a pod
}

var errParty = errors.New("write NAMESPACE/POD or an address")

// ParseQuery reads FROM and TO[:PORT[/PROTOCOL]], with TCP as default. An IPv6
// address before a port stands in brackets.
func ParseQuery(from, to string) (q Query, err error) {
	if q.From, err = parseParty(from); err != nil {
		return q, err
	}
	if m := withPort.FindStringSubmatch(to); m != nil && !isAddr(to) {
		to = strings.TrimSuffix(strings.TrimPrefix(m[1], "["), "]")
		n, err := strconv.ParseUint(m[2], 10, 16)
		if err != nil || n == 0 {
			return q, fmt.Errorf("port %q is no number from 1 to 65535", m[2])
		}
		q.Port, q.Proto = uint16(n), corev1.ProtocolTCP
		if m[3] != "" {
			q.Proto = corev1.Protocol(strings.ToUpper(m[3]))
		}
		if keyword(q.Proto) == "" {
			return q, fmt.Errorf("protocol %q is unknown: use tcp, udp or sctp", m[3])
		}
	}
	q.To, err = parseParty(to)
	return q, err
}

var withPort = regexp.MustCompile(`^(.*):([0-9]+)(?:/([a-zA-Z]+))?$`)

func isAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func parseParty(s string) (Party, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return Party{Addr: a.Unmap()}, nil
	}
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		return Party{}, fmt.Errorf("%q is neither a pod nor an address: %w", s, errParty)
	}
	return Party{Pod: pod.Key{Namespace: ns, Name: name}}, nil
}

// Show describes the policies of a pod, the connections allowed by each, and the
// pod's port groups. It reports false if the pod has no logical port.
func (x *Index) Show(k pod.Key) (string, bool) {
	m := x.members[k]
	if m == nil {
		return "", false
	}
	var b strings.Builder
	for _, d := range []direction{ingress, egress} {
		policies := x.isolating(d, k)
		if len(policies) == 0 {
			fmt.Fprintf(&b, "%s: everything is allowed: no policy isolates it\n", d)
			continue
		}
		fmt.Fprintf(&b, "%s: isolated by %d:\n", d, len(policies))
		for _, s := range policies {
			x.showPolicy(&b, s, d)
		}
	}
	b.WriteString("port groups:\n")
	for _, ref := range x.Refs(k) {
		fmt.Fprintf(&b, "  %s\n", x.groupText(ref.ID))
	}
	return b.String(), true
}

// groupText describes the pods of the port group of a group, or of one for a number
// of a named port.
func (x *Index) groupText(name string) string {
	if g := x.groups.all[name]; g != nil {
		return name + ": " + g.summary()
	}
	return name
}

func (x *Index) showPolicy(b *strings.Builder, s *state, d direction) {
	fmt.Fprintf(b, "  %s: %s\n", s.Key, s.subject.summary())
	rules := 0
	for _, r := range s.rules {
		if r.dir != d {
			continue
		}
		rules++
		ways := s.ways(r)
		for _, way := range ways {
			fmt.Fprintf(b, "    spec.%s[%d]: %s\n", d, r.index, way.match)
		}
		if len(ways) == 0 {
			fmt.Fprintf(b, "    spec.%s[%d]: nothing matches it now\n", d, r.index)
		}
	}
	if rules == 0 {
		b.WriteString("    no rule: it allows nothing\n")
	}
	for _, p := range append(slices.Clone(s.Problems), s.notHonoured(x.policies.planner.limits)...) {
		fmt.Fprintf(b, "    ! %s\n", p)
	}
}
