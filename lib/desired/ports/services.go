// Package ports gives ports of addresses to their users: Services at their frontends, and pods at their hostPorts.
package ports

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/service"
)

// MaxNamed is the largest number of claimants of a port told the name of the holder. With more, a change of the holder needs no
// new message to each of them.
const MaxNamed = 4

// Services decides between Services with the same frontend. Cluster IPs, allocated by Kubernetes, come before addresses
// of load balancers, assigned by controllers, and these before addresses and ports written by users; then the older
// Service is first. A cluster IP belongs to its Service with all ports: no other Service gets another port of it. The zero
// value is empty.
//
// So users with write access to Services cannot redirect traffic of pods to other Services or to the API server
// (CVE-2020-8554).
type Services struct {
	wanted   map[service.Claim][]claimant // the first of each is the holder
	claimed  map[service.Key][]service.Claim
	clusters map[netip.Addr][]claimant          // of cluster IPs: the first of each is the owner
	outside  map[netip.Addr]map[service.Key]int // of other addresses: the Services with claims there, and at how many they are first
	reserved map[service.Claim]bool             // the endpoints of APIServer
	health   map[service.Key]service.Claim      // ports of health checks
	// nodes lists the Services with a port of every node, as a NodePort or for health checks. atHosts has the Services
	// with claims to the same port at an external address of a host.
	nodes   map[service.Claim][]service.Key
	atHosts map[service.Claim]map[service.Key]bool
	hosts   map[netip.Addr]bool
}

// Hosts are the addresses of all hosts.
type Hosts []netip.Addr

// A claimant is a Service with a claim: the fields that decide between two.
type claimant struct {
	service.Key
	created int64
	right   service.Right
}

// before orders claimants: first the Service with the better right, then the older one, and with equal age the first by
// name. The owner of a Service can edit its external IPs at any time, so age alone would give an old Service each address
// assigned to a younger one.
func (a claimant) before(b claimant) int {
	return cmp.Or(cmp.Compare(a.right, b.right), cmp.Compare(a.created, b.created), strings.Compare(a.String(), b.String()))
}

// Put records the claims of s. changed are the other Services to compute again, because they gained or lost
// something. told are those without a gain or loss, but with a new holder to name in their Problems.
func (x *Services) Put(s service.Service) (changed, told []service.Key) {
	x.init()
	if !s.Ours {
		return x.Remove(s.Key)
	}
	all := s.Claims()
	return x.change(s.Key, all[:], func() {
		x.drop(s.Key)
		for right, claims := range all {
			for _, claim := range claims {
				x.add(claim, claimant{s.Key, s.Created, service.Right(right)})
			}
		}
		if p := s.HealthCheckNodePort; p != 0 {
			x.health[s.Key] = service.Claim{Protocol: corev1.ProtocolTCP, Port: p}
		}
		for claim := range x.nodePorts(s.Key) {
			x.nodes[claim] = append(x.nodes[claim], s.Key)
		}
	})
}

// change replaces the claims of k by now. changed are the other Services that gain or lose one of these claims, those
// with a claim at an address with a new owner, and those with a claim at a host's address to a port of every node that k
// gains or loses. told are those with another holder to name. Competing Services may have thousands of claims in common.
func (x *Services) change(k service.Key, now [][]service.Claim, apply func()) (changed, told []service.Key) {
	type holder struct {
		service.Key
		named, assigned bool
	}
	holderOf := func(claim service.Claim) holder {
		is, _ := x.Holder(claim)
		return holder{is, x.named(claim), x.assigned(claim)}
	}
	holders, owners, ports := make(map[service.Claim]holder, len(x.claimed[k])), map[netip.Addr]service.Key{}, x.nodePorts(k)
	for _, claims := range append(now, x.claimed[k]) {
		for _, claim := range claims {
			holders[claim] = holderOf(claim)
			owners[claim.Addr] = x.owner(claim.Addr)
		}
	}
	apply()
	has, hears := map[service.Key]bool{}, map[service.Key]bool{}
	for claim, was := range holders {
		is := holderOf(claim)
		if is == was {
			continue
		}
		if is.Key != was.Key {
			has[was.Key], has[is.Key] = true, true
		}
		if is.named || was.named {
			addKeys(hears, x.wanted[claim])
		}
	}
	for a, was := range owners {
		if x.owner(a) != was {
			for k := range x.outside[a] {
				has[k] = true
			}
			addKeys(has, x.clusters[a])
		}
	}
	for claim := range facts.OtherKeys(ports, x.nodePorts(k), facts.Same) {
		maps.Copy(has, x.atHosts[claim])
	}
	for _, no := range []service.Key{k, {}} {
		delete(has, no)
		delete(hears, no)
	}
	maps.DeleteFunc(hears, func(k service.Key, _ bool) bool { return has[k] })
	return slices.Collect(maps.Keys(has)), slices.Collect(maps.Keys(hears))
}

// named reports whether Problems of the other claimants name the holder.
func (x *Services) named(claim service.Claim) bool { return len(x.wanted[claim]) <= MaxNamed }

// assigned reports whether the holder of a claim has the address from its load balancer.
func (x *Services) assigned(claim service.Claim) bool {
	list := x.wanted[claim]
	return len(list) > 0 && list[0].right == service.Assigned && len(x.clusters[claim.Addr]) == 0 && !x.reserved[claim]
}

// owner is the Service with the cluster IP a, the zero Key if there is none.
func (x *Services) owner(a netip.Addr) service.Key {
	if own := x.clusters[a]; len(own) > 0 {
		return own[0].Key
	}
	return service.Key{}
}

func addKeys(to map[service.Key]bool, from []claimant) {
	for _, o := range from {
		to[o.Key] = true
	}
}

func (x *Services) init() {
	if x.wanted == nil {
		x.wanted, x.claimed = map[service.Claim][]claimant{}, map[service.Key][]service.Claim{}
		x.clusters, x.outside = map[netip.Addr][]claimant{}, map[netip.Addr]map[service.Key]int{}
		x.health, x.nodes, x.atHosts = map[service.Key]service.Claim{}, map[service.Claim][]service.Key{}, map[service.Claim]map[service.Key]bool{}
	}
}

// nodePorts are the claims of k to ports of every node.
func (x *Services) nodePorts(k service.Key) map[service.Claim]bool {
	out := map[service.Claim]bool{}
	for _, claim := range x.claimed[k] {
		if !claim.Addr.IsValid() {
			out[claim] = true
		}
	}
	if claim, ok := x.health[k]; ok {
		out[claim] = true
	}
	return out
}

// Taken returns the ports of k's claims at addresses of hosts that another Service has of every node, with that Service.
// k gets none of these ports there: Kubernetes allocates NodePorts, and users write addresses.
func (x *Services) Taken(k service.Key) map[service.Claim]service.Key {
	var taken map[service.Claim]service.Key
	for _, claim := range x.claimed[k] {
		if !x.hosts[claim.Addr] {
			continue
		}
		for _, other := range x.nodes[claim.AtNodes()] {
			if taken == nil {
				taken = map[service.Claim]service.Key{}
			}
			if was, ok := taken[claim.AtNodes()]; other != k && (!ok || other.String() < was.String()) {
				taken[claim.AtNodes()] = other
			}
		}
	}
	return taken
}

// Reserve records the endpoints of APIServer: no other Service can have them as external addresses. It returns the
// affected Services.
func (x *Services) Reserve(all []service.Endpoints) []service.Key {
	x.init()
	now := map[service.Claim]bool{}
	for _, es := range all {
		for _, e := range es {
			now[service.Claim{Addr: e.Addr, Protocol: corev1.ProtocolTCP, Port: e.Port}] = true
		}
	}
	var touched []service.Key
	for _, list := range []map[service.Claim]bool{x.reserved, now} {
		for claim := range list {
			if x.reserved[claim] == now[claim] {
				continue
			}
			for _, who := range x.wanted[claim] {
				touched = append(touched, who.Key)
			}
		}
	}
	x.reserved = now
	return touched
}

// Reserved lists the addresses of the endpoints of APIServer.
func (x *Services) Reserved() []netip.Addr {
	var out []netip.Addr
	for claim := range x.reserved {
		if !slices.Contains(out, claim.Addr) {
			out = append(out, claim.Addr)
		}
	}
	return out
}

// Remove removes a Service. It returns other Services as Put does.
func (x *Services) Remove(k service.Key) (changed, told []service.Key) {
	return x.change(k, nil, func() { x.drop(k) })
}

// Compact releases the memory of removed claims.
func (x *Services) Compact() {
	x.wanted, x.claimed = maps.Collect(maps.All(x.wanted)), maps.Collect(maps.All(x.claimed))
	x.clusters, x.outside = maps.Collect(maps.All(x.clusters)), maps.Collect(maps.All(x.outside))
	x.health, x.nodes, x.atHosts = maps.Collect(maps.All(x.health)), maps.Collect(maps.All(x.nodes)), maps.Collect(maps.All(x.atHosts))
}

// Lost returns the claims of k held by another Service: the zero Key for claims with more than MaxNamed claimants. It is
// a view without copies until the next change of x, for there may be 50 000 of each of a hundred Services. Copied keeps
// them.
func (x *Services) Lost(k service.Key) service.Lost {
	lost := service.Lost{Assigned: x.assigned, Holder: func(claim service.Claim) (service.Key, bool) {
		holder, _ := x.Holder(claim)
		if holder == k {
			return service.Key{}, false
		}
		if !x.named(claim) {
			holder = service.Key{}
		}
		return holder, true
	}}
	for _, claim := range x.claimed[k] {
		if _, ok := lost.Holder(claim); ok {
			lost.Number++
		}
	}
	return lost
}

// Copied returns the claims in Lost(k) with their holders.
func (x *Services) Copied(k service.Key) map[service.Claim]service.Key {
	lost := x.Lost(k)
	out := make(map[service.Claim]service.Key, lost.Number)
	for _, claim := range x.claimed[k] {
		if holder, ok := lost.Holder(claim); ok {
			out[claim] = holder
		}
	}
	return out
}

// Holder returns the Service with the right to a claim. It reports false if there is none.
func (x *Services) Holder(claim service.Claim) (service.Key, bool) {
	if own := x.clusters[claim.Addr]; len(own) > 0 {
		return own[0].Key, true
	}
	if x.reserved[claim] {
		return service.APIServer(), true
	}
	list := x.wanted[claim]
	if len(list) == 0 {
		return service.Key{}, false
	}
	return list[0].Key, true
}

func (x *Services) add(claim service.Claim, who claimant) {
	was := x.first(claim)
	var added bool
	if x.wanted[claim], added = include(x.wanted[claim], who); !added {
		return
	}
	x.claimed[who.Key] = append(x.claimed[who.Key], claim)
	switch a := claim.Addr; {
	case who.right == service.Allocated:
		x.clusters[a], _ = include(x.clusters[a], who)
	case a.IsValid():
		if x.outside[a] == nil {
			x.outside[a] = map[service.Key]int{}
		}
		x.outside[a][who.Key] += 0
		x.addAtHosts(claim, who.Key)
	}
	x.counts(claim, was)
}

// first is the first claimant of a claim, the zero Key if there is none.
func (x *Services) first(claim service.Claim) service.Key {
	if list := x.wanted[claim]; len(list) > 0 {
		return list[0].Key
	}
	return service.Key{}
}

// counts counts the first claimant of a claim, in place of the one before.
func (x *Services) counts(claim service.Claim, was service.Key) {
	is := x.first(claim)
	if is == was {
		return
	}
	at := x.outside[claim.Addr]
	if n, ok := at[was]; ok {
		at[was] = n - 1
	}
	if n, ok := at[is]; ok {
		at[is] = n + 1
	}
}

// include inserts who into a sorted list, and reports whether it was missing.
func include(list []claimant, who claimant) ([]claimant, bool) {
	if slices.ContainsFunc(list, func(o claimant) bool { return o.Key == who.Key }) {
		return list, false
	}
	at, _ := slices.BinarySearchFunc(list, who, claimant.before)
	return slices.Insert(list, at, who), true
}

func (x *Services) drop(k service.Key) {
	for claim := range x.nodePorts(k) {
		forget(x.nodes, claim, k)
	}
	delete(x.health, k)
	for _, claim := range x.claimed[k] {
		was := x.first(claim)
		without(x.wanted, claim, k)
		x.counts(claim, was)
		without(x.clusters, claim.Addr, k)
		if delete(x.outside[claim.Addr], k); len(x.outside[claim.Addr]) == 0 {
			delete(x.outside, claim.Addr)
		}
		x.dropAtHosts(claim, k)
	}
	delete(x.claimed, k)
}

// forget removes k from the list of a claim.
func forget(lists map[service.Claim][]service.Key, claim service.Claim, k service.Key) {
	list := slices.DeleteFunc(lists[claim], func(o service.Key) bool { return o == k })
	if lists[claim] = list; len(list) == 0 {
		delete(lists, claim)
	}
}

// without removes k from the list of a key.
func without[K comparable](lists map[K][]claimant, at K, k service.Key) {
	list := slices.DeleteFunc(lists[at], func(o claimant) bool { return o.Key == k })
	if lists[at] = list; len(list) == 0 {
		delete(lists, at)
	}
}

// Outside lists the claimed addresses outside the cluster.
func (x *Services) Outside() iter.Seq[netip.Addr] { return maps.Keys(x.outside) }

// At lists the Services with claims at an address outside that are the first claimants. Only these may hold one.
func (x *Services) At(a netip.Addr) iter.Seq[service.Key] {
	return func(yield func(service.Key) bool) {
		for k, first := range x.outside[a] {
			if first > 0 && !yield(k) {
				return
			}
		}
	}
}
