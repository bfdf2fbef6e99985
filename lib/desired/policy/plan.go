package policy

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// limits are those of what policies make: the members of port groups are what a pod
// costs when it starts.
type limits struct {
	// perPod times the pods of the cluster, or minMembers if that is more, is how many
	// members the groups of one policy may have. So up to perPod selectors are never
	// too many.
	perPod, minMembers int
	// perSpace is how many times the limit of one policy all policies of a namespace
	// have together.
	perSpace int
	// perFlows is how many times as many addresses as members the rules of a policy may
	// name: each is a flow, in each rule.
	perFlows int
	// portSets is how many port groups the named ports of a policy become: one for each
	// set of numbers that the names of a rule have in some pods. portBytes is the size of
	// the matches with those numbers.
	portSets, portBytes int
	// unit is the step in which small numbers of pods are counted.
	unit int
	// nameBytes is how many bytes of a hash short names of groups have.
	nameBytes int
}

func defaultLimits() limits {
	return limits{perPod: 4, minMembers: 50_000, perSpace: 4, perFlows: 10, portSets: 1000, portBytes: 4_000_000, unit: 32, nameBytes: 8}
}

// A plan is what a policy makes of its rules, given about how many pods there are.
type plan struct {
	rules  []rule         // with simplified peers, without duplicates; none if excess is set
	excess string         // why nothing is allowed, "" if the plan is within the limits
	prices map[string]int // by group: how many members it has at most, with its numbered ones
	price  int            // the sum
}

// maxMembers is the limit of the members of the groups of a policy.
func (x *Index) maxMembers() int {
	return max(x.limits.minMembers, x.limits.perPod*x.census.pods.rounded(x.census.unit))
}

// plan computes what a policy of namespace n makes, without looking at single pods.
func (x *Index) plan(n *namespace, p Policy) plan {
	out := plan{prices: map[string]int{}}
	flows := 0
	// add adds a group, and its numbered groups for one rule that names ports.
	add := func(from peer, named []namedPort) int {
		name, pods := groupName(peerText(from, n), sha256.Size), x.atMost(from, n)
		if _, known := out.prices[name]; !known {
			out.prices[name] = pods
		}
		out.prices[name] += min(1, len(named)) * pods
		return pods
	}
	add(peer{pods: p.subject}, nil)
	for _, r := range p.rules {
		r.peers = x.simplifiedPeers(r.peers, n)
		flows += len(r.blocks)
		resolved := r.named
		if r.dir == ingress {
			add(peer{pods: p.subject}, r.named)
			resolved = nil
		}
		for _, from := range r.allPeers() {
			flows += add(from, resolved)
		}
		out.rules = append(out.rules, r)
	}
	for _, price := range out.prices {
		out.price += price
	}
	const format = "spec: nothing is allowed: the policy's selectors may select %d %s, more than %d; use fewer selectors, or labels that fewer pods have"
	if limit := x.maxMembers(); out.price > limit {
		out.excess = fmt.Sprintf(format, out.price, "pods in sum", limit)
	} else if limit := x.limits.perFlows * limit; flows > limit {
		out.excess = fmt.Sprintf(format, flows, "pods in the sum of all rules", limit)
	}
	if out.excess != "" {
		out.rules = nil
	}
	return out
}

// everybody is a peer that selects all pods.
var everybody = peer{everywhere: true}

// allPeers are the peers of a rule by selector. An egress rule for anyone that names
// ports of containers asks everybody for their numbers.
func (r *rule) allPeers() []peer {
	if r.anyone && r.dir == egress && len(r.named) > 0 {
		return []peer{everybody}
	}
	return r.peers
}

// simplifiedPeers leaves out what excludes nobody, peers that are equal then, and all
// others if one selects all pods.
func (x *Index) simplifiedPeers(peers []peer, n *namespace) (out []peer) {
	known := make(map[string]bool, len(peers))
	for _, p := range peers {
		p.namespaces = x.census.ofSpace.simplified(p.namespaces)
		p.pods = x.census.own.simplified(p.pods)
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

// atMost is how many pods a peer of a policy in namespace n selects at most, and no
// less than it costs to look through its namespaces.
func (x *Index) atMost(p peer, n *namespace) int {
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

// watches lists the counts that the plan of a policy depends on. Small policies are
// within the limits anyway.
func (x *Index) watches(n *namespace, p Policy) (out []watch) {
	priced := p.selectors() > x.limits.perPod || x.crowded(n)
	if priced {
		out = append(out, watch{count: &x.census.pods}, watch{count: &x.census.namespaces}, watch{count: &n.pods})
		out = append(out, x.census.own.watches(p.subject, true)...)
	}
	for i := range p.rules {
		for _, from := range p.rules[i].peers {
			out = append(out, x.census.ofSpace.watches(from.namespaces, priced)...)
			out = append(out, x.census.own.watches(from.pods, priced)...)
		}
	}
	known := make(map[*count]bool, len(out))
	return slices.DeleteFunc(out, func(w watch) bool {
		before := known[w.count]
		known[w.count] = true
		return before
	})
}

// selectors is how many groups a policy has at most, numbered ones included.
func (p *Policy) selectors() int {
	n := 1
	for i := range p.rules {
		n += (len(p.rules[i].peers) + 1) * (1 + min(1, len(p.rules[i].named)))
	}
	return n
}

// crowded reports whether the policies of a namespace may exceed its limit.
func (x *Index) crowded(n *namespace) bool { return n.selectors > x.limits.perPod*x.limits.perSpace }

// judge says which policies of a namespace exceed its limit: the older ones come
// first.
func (x *Index) judge(n *namespace) (squeezed map[*state]string) {
	if !x.crowded(n) {
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
	squeezed = map[*state]string{}
	counted, sum := map[string]bool{}, 0
	for _, s := range slices.SortedFunc(slices.Values(n.policies), compareAges) {
		more := 0
		for name, price := range s.prices {
			if !counted[name] {
				more += price
			}
		}
		switch {
		case s.excess != "":
		case sum+more > limit:
			squeezed[s] = fmt.Sprintf("namespace %s: nothing is allowed: with this policy, the selectors of its policies may select %d pods in sum, more than %d; use fewer selectors", n.name, sum+more, limit)
		default:
			sum += more
			for name := range s.prices {
				counted[name] = true
			}
		}
	}
	return squeezed
}

func compareAges(a, b *state) int {
	return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.Name, b.Name))
}
