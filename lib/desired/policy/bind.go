package policy

import "slices"

// A state is a policy, its plan, and its groups.
type state struct {
	Policy
	plan
	spaceExcess string // the Problem if the policy exceeds the limit of the namespace
	subject     *group
	rules       []boundRule
	priced      bool // may exceed a limit
	watching    []watch
	choked      string // the Problem if named ports exceed their limits
	reach       int    // of named ports
}

// A boundRule is a rule, and the groups of its peers. A rule for anyone with named ports of containers has one more
// group: everybody's.
type boundRule struct {
	rule
	peers []*group
	names string // text of the named ports
}

// policies are all policies with their plans, bound to groups.
type policies struct {
	all     map[Key]*state
	planner planner
	groups  *groups
	spaces  *spaces
	pending *pending
	touched *touched
}

// notHonoured is the reason why nothing is allowed, or named ports do not count everywhere; none if all rules are in force.
func (s *state) notHonoured(l limits) []string {
	for _, why := range []string{s.excess, s.spaceExcess, s.choked, s.leftOut(l)} {
		if why != "" {
			return []string{why}
		}
	}
	return nil
}

// refused reports whether the policy is beyond a limit of pods. So its subject has no port group, but shares one.
func (s *state) refused() bool { return s.excess != "" || s.spaceExcess != "" }

// install replaces the policy old by p. Either may be nil.
func (x *policies) install(n *namespace, old *state, p *Policy) {
	if p != nil {
		x.countSelectors(n, p.selectors())
	}
	if old != nil {
		x.countSelectors(n, -old.selectors())
	}
	var s *state
	if p != nil {
		s = x.planner.newState(n, *p)
		n.policies = append(n.policies, s)
		x.all[p.Key] = s
		if inForce := old != nil && old.excess == "" && old.spaceExcess == ""; n.full && !inForce && s.excess == "" {
			s.spaceExcess = undecided
		}
	}
	if old != nil {
		n.policies = without(n.policies, old)
	}
	x.limitLater(n)
	if s != nil {
		x.bind(n, s)
	}
	if old != nil { // after bind, to keep groups used by both
		x.unbind(old)
	}
}

// undecided is the Problem of a new policy in a namespace at its limit, until limitNamespace compares the ages.
const undecided = "nothing is allowed until all policies of the namespace are compared with its limit"

// limitLater records a change of a policy, or of its price. The limit of a namespace costs as much as all its policies, so it is
// applied once for many changes: after a sixteenth of the policies, or at the end of all changes.
func (x *policies) limitLater(n *namespace) {
	n.changes++
	x.pending.changed[n] = true
	if 16*n.changes > len(n.policies) {
		x.pending.limited[n] = true
	}
}

// countSelectors counts the selectors of the policies of a namespace. If there are many, the prices of small policies matter,
// too.
func (x *policies) countSelectors(n *namespace, by int) {
	before := x.planner.manySelectors(n)
	if n.selectors += by; before == x.planner.manySelectors(n) {
		return
	}
	for _, s := range n.policies {
		s.unwatch()
		s.priced = x.planner.priced(n, s.Policy)
		s.watching = x.planner.watches(s.Policy, s.priced)
		s.watch()
		x.pending.unpriced[s] = true
	}
}

// limitNamespace applies the results of overLimit to the policies of a namespace.
func (x *policies) limitNamespace(n *namespace) {
	spaceExcess := x.planner.overLimit(n)
	n.changes, n.full = 0, len(spaceExcess) > 0
	delete(x.pending.changed, n)
	for i, old := range n.policies {
		why := spaceExcess[old]
		if why == old.spaceExcess {
			continue
		}
		x.touched.add(old.Unit())
		if (why == "") == (old.spaceExcess == "") {
			old.spaceExcess = why
			continue
		}
		s := x.planner.newState(n, old.Policy)
		s.spaceExcess = why
		n.policies[i] = s
		x.all[s.Key] = s
		x.bind(n, s)
		x.unbind(old)
	}
}

// settle applies the consequences of changed counts and ports.
func (x *policies) settle() {
	x.reprice()
	for n := range x.pending.limited {
		x.limitNamespace(n)
	}
	clear(x.pending.limited)
	for s := range x.pending.unsettled {
		if x.all[s.Key] == s {
			x.settlePorts(s)
		}
	}
	clear(x.pending.unsettled)
	for n, g := range x.pending.sets {
		x.groups.settleSets(g, n)
	}
	clear(x.pending.sets)
}

// reprice computes the prices of the policies with changed counts again.
func (x *policies) reprice() {
	for len(x.pending.unpriced) > 0 {
		unpriced := x.pending.unpriced
		x.pending.unpriced = map[*state]bool{}
		for s := range unpriced {
			if x.all[s.Key] == s {
				n := x.spaces.all[s.Namespace]
				x.limitLater(n)
				x.repriceOne(n, s)
			}
		}
	}
}

func (x *policies) repriceOne(n *namespace, s *state) {
	was := s.excess
	x.planner.price(n, &s.plan)
	if s.excess == was {
		x.settleFlows(s)
		return
	}
	x.touched.add(s.Unit())
	if (s.excess == "") != (was == "") {
		x.install(n, s, &s.Policy)
	}
}

// settleFlows compares the flows of the named ports of a policy with the limit, after its price changed.
func (x *policies) settleFlows(s *state) {
	if slices.ContainsFunc(s.rules, func(r boundRule) bool { return len(r.named) > 0 }) {
		x.settlePorts(s)
	}
}

func (s *state) watch() {
	for _, w := range s.watching {
		w.start(s)
	}
}

func (s *state) unwatch() {
	for _, w := range s.watching {
		w.stop(s)
	}
}

// bind finds or makes the groups of a policy.
func (x *policies) bind(n *namespace, s *state) {
	s.reach = nowhere
	s.watch()
	if s.refused() {
		s.subject = x.groups.useIn(x.spaces.refusedIn(n), s.Policy.subject)
	} else {
		s.subject = x.groups.use(peer{pods: s.Policy.subject}, n)
	}
	s.subject.policies = append(s.subject.policies, s)
	for d, yes := range s.isolates {
		if yes {
			x.groups.isolate(s.subject, direction(d), 1)
		}
	}
	if s.spaceExcess != "" {
		return // the plan has no rules if it has an excess
	}
	for _, r := range s.plan.rules {
		b := boundRule{rule: r, names: textOf(r.named)}
		for _, from := range r.allPeers() {
			b.peers = append(b.peers, x.groups.use(from, n))
		}
		s.rules = append(s.rules, b)
	}
	for i := range s.rules {
		x.groups.resolve(s, &s.rules[i])
	}
	x.settlePorts(s)
}

// unbind is the opposite of bind.
func (x *policies) unbind(s *state) {
	s.unwatch()
	for i := range s.rules {
		x.groups.unresolve(s, &s.rules[i])
		for _, g := range s.rules[i].peers {
			x.groups.disuse(g)
		}
	}
	for d, yes := range s.isolates {
		if yes {
			x.groups.isolate(s.subject, direction(d), -1)
		}
	}
	s.subject.policies = without(s.subject.policies, s)
	x.groups.disuse(s.subject)
}

// resolvers are the groups with the numbers of a rule's named ports: the destinations of its connections.
func (r *boundRule) resolvers(s *state) []*group {
	if r.dir == ingress {
		return []*group{s.subject}
	}
	return r.peers
}
