package policy

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// limits bound the size of policies: the members of port groups determine the cost of a starting pod.
type limits struct {
	// perPod times the pods of the cluster, or minMembers if that is more, is the maximum number of members of the
	// groups of one policy. So up to perPod selectors are always allowed.
	perPod, minMembers int
	// perSpace times the limit of one policy is the limit of all policies of a namespace together.
	perSpace int
	// perFlows times the limit of members is the maximum number of addresses in the rules of a policy: each is a
	// flow, in each rule, and of ingress at each set of numbers of named ports.
	perFlows int
	// portSets is the maximum number of port groups for the named ports of a policy: one for each set of numbers that
	// the names of a rule have in some pods. portBytes is the maximum size of the matches with these numbers.
	portSets, portBytes int
	// unit is the step for counting small numbers of pods.
	unit int
	// nameBytes is the number of bytes of a hash in short names of groups.
	nameBytes int
}

func defaultLimits() limits {
	return limits{perPod: 4, minMembers: 50_000, perSpace: 4, perFlows: 10, portSets: 1000, portBytes: 4_000_000, unit: 32, nameBytes: 8}
}

// A plan has the groups of a policy's rules and their cost, for the approximate number of pods.
type plan struct {
	rules  []rule      // without duplicates of peers; none if excess is set
	costs  []groupCost // one for each group
	flows  []ruleCost  // one for each rule
	excess string      // reason why nothing is allowed, "" if the plan is within the limits
	price  int         // the sum of the costs
}

// A groupCost is the maximum number of members of a group and its numbered groups.
type groupCost struct {
	group string
	from  peer
	named int // rules with named ports, each a numbered group for each set of numbers
	pods  int // in the group at most
}

func (c groupCost) price() int { return c.pods * (1 + c.named) }

// A ruleCost is the maximum number of pods of a rule's peers, and its subnets: each is a flow.
type ruleCost struct {
	peers         []int // in the costs of groups
	blocks, flows int
}

// A planner plans policies: it compares their cost with the limits.
type planner struct {
	limits limits
	census *census
}

// maxMembers is the limit of the members of the groups of a policy.
func (x *planner) maxMembers() int {
	return max(x.limits.minMembers, x.limits.perPod*x.census.pods.rounded(x.census.unit))
}

// maxFlows is the limit of the flows of a policy.
func (x *planner) maxFlows() int { return x.limits.perFlows * x.maxMembers() }

// plan computes the plan of a policy of namespace n, without looking at single pods.
func (x *planner) plan(n *namespace, p Policy) plan {
	out := plan{}
	at := map[string]int{}
	// add adds a group, and its numbered groups for one rule with named ports.
	add := func(name string, from peer, named []namedPort) int {
		i, known := at[name]
		if !known {
			i = len(out.costs)
			at[name] = i
			out.costs = append(out.costs, groupCost{group: name, from: from})
		}
		out.costs[i].named += min(1, len(named))
		return i
	}
	id := func(from peer) string { return groupName(peerText(from, n), sha256.Size) }
	subject := peer{pods: p.subject}
	own := id(subject) // once: it may be long
	add(own, subject, nil)
	for _, r := range p.rules {
		r.peers = distinctPeers(r.peers, n)
		cost := ruleCost{blocks: len(r.blocks)}
		resolved := r.named
		if r.dir == ingress {
			add(own, subject, r.named)
			resolved = nil
		}
		for _, from := range r.allPeers() {
			cost.peers = append(cost.peers, add(id(from), from, resolved))
		}
		out.flows = append(out.flows, cost)
		out.rules = append(out.rules, r)
	}
	if x.price(n, &out); out.excess != "" {
		out.rules = nil
	}
	return out
}

// newState plans a policy.
func (x *planner) newState(n *namespace, p Policy) *state {
	priced := x.priced(n, p)
	return &state{Policy: p, plan: x.plan(n, p), priced: priced, watching: x.watches(p, priced)}
}

// price computes the costs of a plan from the counts of pods, and its excess.
func (x *planner) price(n *namespace, p *plan) {
	flows := 0
	p.price, p.excess = 0, ""
	for i := range p.costs {
		c := &p.costs[i]
		c.pods = x.atMost(c.from, n)
		p.price += c.price()
	}
	for i := range p.flows {
		r := &p.flows[i]
		r.flows = r.blocks
		for _, at := range r.peers {
			r.flows += p.costs[at].pods
		}
		flows += r.flows
	}
	const format = "spec: nothing is allowed: the policy's selectors may select %d %s, more than %d; use fewer selectors, or labels that fewer pods have"
	if limit := x.maxMembers(); p.price > limit {
		p.excess = fmt.Sprintf(format, p.price, "pods in sum", limit)
	} else if limit := x.maxFlows(); flows > limit {
		p.excess = fmt.Sprintf(format, flows, "pods in the sum of all rules", limit)
	}
}

// everybody is a peer with all pods.
var everybody = peer{everywhere: true}

// allPeers are the peers of a rule by selector. An egress rule for anyone with named ports of containers looks up
// their numbers in everybody.
func (r *rule) allPeers() []peer {
	if r.anyone && r.dir == egress && len(r.named) > 0 {
		return []peer{everybody}
	}
	return r.peers
}

// distinctPeers leaves out duplicates, and all other peers if one selects all pods. A requirement that excludes no pod
// stays: a pod that it excludes may come, and another group would be a change of all pods.
func distinctPeers(peers []peer, n *namespace) (out []peer) {
	known := make(map[string]bool, len(peers))
	for _, p := range peers {
		text := peerText(p, n)
		if known[text] {
			continue
		}
		if known[text] = true; p.all() {
			return []peer{everybody}
		}
		out = append(out, p)
	}
	return out
}

// all reports whether p selects all pods.
func (p peer) all() bool {
	return p.everywhere && len(p.namespaces.needs) == 0 && len(p.pods.needs) == 0
}

// atMost is an upper bound of the pods selected by a peer of a policy in namespace n, and at least the cost to look
// through its namespaces.
func (x *planner) atMost(p peer, n *namespace) int {
	if !p.everywhere {
		return x.census.own.atMost(p.pods, n.pods.rounded(x.census.unit))
	}
	all := x.census.pods.rounded(x.census.unit)
	pods := min(x.census.own.atMost(p.pods, all), x.census.ofSpace.atMost(p.namespaces, all))
	if byLabel, _ := p.namespaces.places(); byLabel == nil && len(p.namespaces.needs) > 0 {
		return max(pods, x.census.namespaces.rounded(x.census.unit)/16)
	}
	return pods
}

// priced reports whether a policy may exceed a limit, its own or its namespace's.
func (x *planner) priced(n *namespace, p Policy) bool {
	return x.manySelectors(n) || p.selectors() > x.limits.perPod
}

// watches lists the counts of labels in the price of a policy.
func (x *planner) watches(p Policy, priced bool) (out []watch) {
	if !priced {
		return nil
	}
	out = x.census.own.watches(p.subject)
	for i := range p.rules {
		for _, from := range p.rules[i].peers {
			out = append(out, x.census.ofSpace.watches(from.namespaces)...)
			out = append(out, x.census.own.watches(from.pods)...)
		}
	}
	known := make(map[*count]bool, len(out))
	return slices.DeleteFunc(out, func(w watch) bool {
		before := known[w.count]
		known[w.count] = true
		return before
	})
}

// selectors is the maximum number of groups of a policy, with numbered ones.
func (p *Policy) selectors() int {
	n := 1
	for i := range p.rules {
		n += (len(p.rules[i].peers) + 1) * (1 + min(1, len(p.rules[i].named)))
	}
	return n
}

// manySelectors reports whether the policies of a namespace may exceed its limit.
func (x *planner) manySelectors(n *namespace) bool {
	return n.selectors > x.limits.perPod*x.limits.perSpace
}

// overLimit returns the policies above the limit of a namespace, each with the reason: the older ones come first.
func (x *planner) overLimit(n *namespace) (spaceExcess map[*state]string) {
	if !x.manySelectors(n) {
		return nil
	}
	limit, sum := x.limits.perSpace*x.maxMembers(), 0
	for _, s := range n.policies {
		if s.excess == "" {
			sum += s.price
		}
	}
	if sum <= limit {
		return nil
	}
	spaceExcess = map[*state]string{}
	counted, sum := map[string]bool{}, 0
	for _, s := range slices.SortedFunc(slices.Values(n.policies), compareAges) {
		more := 0
		for _, c := range s.costs {
			if !counted[c.group] {
				more += c.price()
			}
		}
		switch {
		case s.excess != "":
		case sum+more > limit:
			spaceExcess[s] = fmt.Sprintf("namespace %s: nothing is allowed: with this policy, the selectors of its policies may select %d pods in sum, more than %d; use fewer selectors", n.name, sum+more, limit)
		default:
			sum += more
			for _, c := range s.costs {
				counted[c.group] = true
			}
		}
	}
	return spaceExcess
}

func compareAges(a, b *state) int {
	return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.Name, b.Name))
}
