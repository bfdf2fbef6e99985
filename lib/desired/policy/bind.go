package policy

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
