package service

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Claim is the right of one Service to a frontend.
type Claim struct {
	Addr     netip.Addr // the zero Addr stands for every node
	Protocol corev1.Protocol
	Port     uint16
}

// String is the claim for people: "203.0.113.9:80/TCP", "nodePort 30080/TCP".
func (c Claim) String() string {
	if !c.Addr.IsValid() {
		return fmt.Sprintf("nodePort %d/%s", c.Port, c.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(c.Addr, c.Port), c.Protocol)
}

// Claims decides between Services with the same frontend. Cluster IPs, which Kubernetes allocates, come before
// addresses and ports written by users; then the older Service is first. A cluster IP belongs to its Service with all
// ports: no other Service gets another port of it. The zero value is empty.
//
// So users with write access to Services cannot redirect traffic of pods to other Services or to the API server
// (CVE-2020-8554).
type Claims struct {
	wanted   map[Claim][]claimant // the first of each is the holder
	claimed  map[Key][]Claim
	clusters map[netip.Addr][]claimant   // of cluster IPs: the first of each is the owner
	outside  map[netip.Addr]map[Key]bool // of other addresses: the Services with a claim there
	reserved map[Claim]bool              // the endpoints of APIServer
	health   map[Key]Claim               // ports of health checks
	// nodes lists the Services with a port of every node, as a NodePort or for health checks. abroad has the Services
	// with the same port at addresses outside, for these may be a node's.
	nodes  map[Claim][]Key
	abroad map[Claim]map[Key]bool
}

// maxNamed is the largest number of claimants told the name of the holder. With more, a change of the holder needs no
// new message to each of them.
const maxNamed = 4

// APIServer is the Service of the API server. Its endpoints are addresses of hosts; pods and nodes connect to them.
func APIServer() Key { return Key{"default", "kubernetes"} }

// A claimant is a Service with a claim: the fields that decide between two.
type claimant struct {
	Key
	created int64
	own     bool
}

// before orders claimants: first the Service with the address as its cluster IP, then the older one, and with equal
// age the first by name.
func (a claimant) before(b claimant) int {
	switch {
	case a.own && !b.own:
		return -1
	case b.own && !a.own:
		return 1
	}
	return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.String(), b.String()))
}

// Put records the claims of s. changed are the other Services to compute again, because they gained or lost
// something. told are those without a gain or loss, but with a new holder to name in their Problems.
func (c *Claims) Put(s Service) (changed, told []Key) {
	c.init()
	if !s.Ours {
		return c.Remove(s.Key)
	}
	own, others := s.wants()
	return c.change(s.Key, [][]Claim{own, others}, func() {
		c.drop(s.Key)
		for _, claim := range own {
			c.add(claim, claimant{s.Key, s.Created, true})
		}
		for _, claim := range others {
			c.add(claim, claimant{s.Key, s.Created, false})
		}
		if p := s.HealthCheckNodePort; p != 0 {
			c.health[s.Key] = Claim{netip.Addr{}, corev1.ProtocolTCP, p}
		}
		for _, claim := range c.nodePorts(s.Key) {
			c.nodes[claim] = append(c.nodes[claim], s.Key)
		}
	})
}

// wants lists the claims of s: those at its cluster IPs, and others.
func (s Service) wants() (own, others []Claim) {
	own, others = make([]Claim, 0, len(s.Ports)*len(s.ClusterIPs)), make([]Claim, 0, len(s.Ports)*(len(s.Outside)+1))
	for _, p := range s.Ports {
		for _, a := range s.ClusterIPs {
			own = append(own, Claim{a, p.Protocol, p.Port})
		}
		for _, a := range s.Outside {
			others = append(others, Claim{a, p.Protocol, p.Port})
		}
		if p.NodePort != 0 {
			others = append(others, Claim{netip.Addr{}, p.Protocol, p.NodePort})
		}
	}
	return own, others
}

// change replaces the claims of k by now. changed are the other Services that gain or lose one of these claims, those
// with a claim at an address with a new owner, and those with addresses outside at a port of every node that k gains
// or loses. told are those with another holder to name. Competing Services may have thousands of claims in common.
func (c *Claims) change(k Key, now [][]Claim, apply func()) (changed, told []Key) {
	type holder struct {
		Key
		named bool
	}
	holderOf := func(claim Claim) holder {
		is, _ := c.Holder(claim)
		return holder{is, c.named(claim)}
	}
	holders, owners, ports := make(map[Claim]holder, len(c.claimed[k])), map[netip.Addr]Key{}, setOf(c.nodePorts(k))
	for _, claims := range append(now, c.claimed[k]) {
		for _, claim := range claims {
			holders[claim] = holderOf(claim)
			owners[claim.Addr] = c.owner(claim.Addr)
		}
	}
	apply()
	has, hears := map[Key]bool{}, map[Key]bool{}
	for claim, was := range holders {
		is := holderOf(claim)
		if is == was {
			continue
		}
		if is.Key != was.Key {
			has[was.Key], has[is.Key] = true, true
		}
		if is.named || was.named {
			addKeys(hears, c.wanted[claim])
		}
	}
	for a, was := range owners {
		if c.owner(a) != was {
			maps.Copy(has, c.outside[a])
			addKeys(has, c.clusters[a])
		}
	}
	for claim := range otherKeys(ports, setOf(c.nodePorts(k))) {
		maps.Copy(has, c.abroad[claim])
	}
	for _, no := range []Key{k, {}} {
		delete(has, no)
		delete(hears, no)
	}
	return slices.Collect(maps.Keys(has)), slices.Collect(maps.Keys(otherThan(hears, has)))
}

// otherKeys returns the keys in exactly one of two sets.
func otherKeys[K comparable](a, b map[K]bool) map[K]bool {
	out := otherThan(a, b)
	maps.Copy(out, otherThan(b, a))
	return out
}

// otherThan returns the keys of a missing in b.
func otherThan[K comparable](a, b map[K]bool) map[K]bool {
	out := map[K]bool{}
	for k := range a {
		if !b[k] {
			out[k] = true
		}
	}
	return out
}

// named reports whether Problems of the other claimants name the holder.
func (c *Claims) named(claim Claim) bool { return len(c.wanted[claim]) <= maxNamed }

// owner is the Service with the cluster IP a, the zero Key if there is none.
func (c *Claims) owner(a netip.Addr) Key {
	if own := c.clusters[a]; len(own) > 0 {
		return own[0].Key
	}
	return Key{}
}

func addKeys(to map[Key]bool, from []claimant) {
	for _, o := range from {
		to[o.Key] = true
	}
}

func (c *Claims) init() {
	if c.wanted == nil {
		c.wanted, c.claimed = map[Claim][]claimant{}, map[Key][]Claim{}
		c.clusters, c.outside = map[netip.Addr][]claimant{}, map[netip.Addr]map[Key]bool{}
		c.health, c.nodes, c.abroad = map[Key]Claim{}, map[Claim][]Key{}, map[Claim]map[Key]bool{}
	}
}

// atNodes is the claim to the same port of every node.
func (c Claim) atNodes() Claim { return Claim{Protocol: c.Protocol, Port: c.Port} }

// nodePorts lists the claims of k to ports of every node.
func (c *Claims) nodePorts(k Key) (out []Claim) {
	for _, claim := range c.claimed[k] {
		if !claim.Addr.IsValid() {
			out = append(out, claim)
		}
	}
	if claim, ok := c.health[k]; ok && !slices.Contains(out, claim) {
		out = append(out, claim)
	}
	return out
}

// Taken returns the ports of k's claims at addresses outside that another Service has of every node, with that
// Service. If such an address is a node's, k gets none of these ports there: Kubernetes allocates NodePorts, and
// users write addresses.
func (c *Claims) Taken(k Key) map[Claim]Key {
	var taken map[Claim]Key
	for _, claim := range c.claimed[k] {
		if !claim.Addr.IsValid() {
			continue
		}
		for _, other := range c.nodes[claim.atNodes()] {
			if taken == nil {
				taken = map[Claim]Key{}
			}
			if was, ok := taken[claim.atNodes()]; other != k && (!ok || other.String() < was.String()) {
				taken[claim.atNodes()] = other
			}
		}
	}
	return taken
}

// Reserve records the endpoints of APIServer: no other Service can have them as external addresses. It returns the
// affected Services.
func (c *Claims) Reserve(all []Endpoints) []Key {
	c.init()
	now := map[Claim]bool{}
	for _, es := range all {
		for _, e := range es {
			now[Claim{e.Addr, corev1.ProtocolTCP, e.Port}] = true
		}
	}
	var touched []Key
	for _, list := range []map[Claim]bool{c.reserved, now} {
		for claim := range list {
			if c.reserved[claim] == now[claim] {
				continue
			}
			for _, who := range c.wanted[claim] {
				touched = append(touched, who.Key)
			}
		}
	}
	c.reserved = now
	return touched
}

// Reserved lists the addresses of the endpoints of APIServer.
func (c *Claims) Reserved() []netip.Addr {
	var out []netip.Addr
	for claim := range c.reserved {
		if !slices.Contains(out, claim.Addr) {
			out = append(out, claim.Addr)
		}
	}
	return out
}

// Remove removes a Service. It returns other Services as Put does.
func (c *Claims) Remove(k Key) (changed, told []Key) {
	return c.change(k, nil, func() { c.drop(k) })
}

// Compact releases the memory of removed claims.
func (c *Claims) Compact() {
	c.wanted, c.claimed = maps.Collect(maps.All(c.wanted)), maps.Collect(maps.All(c.claimed))
	c.clusters, c.outside = maps.Collect(maps.All(c.clusters)), maps.Collect(maps.All(c.outside))
	c.nodes, c.abroad = maps.Collect(maps.All(c.nodes)), maps.Collect(maps.All(c.abroad))
}

// Lost returns the claims of k held by another Service, and that Service: the zero Key for claims with more than
// maxNamed claimants.
func (c *Claims) Lost(k Key) map[Claim]Key {
	n := 0 // there may be 50 000
	for _, claim := range c.claimed[k] {
		if holder, _ := c.Holder(claim); holder != k {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	lost := make(map[Claim]Key, n)
	for _, claim := range c.claimed[k] {
		if holder, _ := c.Holder(claim); holder != k {
			if !c.named(claim) {
				holder = Key{}
			}
			lost[claim] = holder
		}
	}
	return lost
}

// Holder returns the Service with the right to a claim. It reports false if there is none.
func (c *Claims) Holder(claim Claim) (Key, bool) {
	if own := c.clusters[claim.Addr]; len(own) > 0 {
		return own[0].Key, true
	}
	if c.reserved[claim] {
		return APIServer(), true
	}
	list := c.wanted[claim]
	if len(list) == 0 {
		return Key{}, false
	}
	return list[0].Key, true
}

func (c *Claims) add(claim Claim, who claimant) {
	var added bool
	if c.wanted[claim], added = include(c.wanted[claim], who); !added {
		return
	}
	c.claimed[who.Key] = append(c.claimed[who.Key], claim)
	switch a := claim.Addr; {
	case who.own:
		c.clusters[a], _ = include(c.clusters[a], who)
	case a.IsValid():
		if c.outside[a] == nil {
			c.outside[a] = map[Key]bool{}
		}
		c.outside[a][who.Key] = true
		at := claim.atNodes()
		if c.abroad[at] == nil {
			c.abroad[at] = map[Key]bool{}
		}
		c.abroad[at][who.Key] = true
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

func (c *Claims) drop(k Key) {
	for _, claim := range c.nodePorts(k) {
		forget(c.nodes, claim, k)
	}
	delete(c.health, k)
	for _, claim := range c.claimed[k] {
		without(c.wanted, claim, k)
		without(c.clusters, claim.Addr, k)
		if delete(c.outside[claim.Addr], k); len(c.outside[claim.Addr]) == 0 {
			delete(c.outside, claim.Addr)
		}
		at := claim.atNodes()
		if delete(c.abroad[at], k); len(c.abroad[at]) == 0 {
			delete(c.abroad, at)
		}
	}
	delete(c.claimed, k)
}

// forget removes k from the list of a claim.
func forget(lists map[Claim][]Key, claim Claim, k Key) {
	list := slices.DeleteFunc(lists[claim], func(o Key) bool { return o == k })
	if lists[claim] = list; len(list) == 0 {
		delete(lists, claim)
	}
}

// without removes k from the list of a key.
func without[K comparable](lists map[K][]claimant, at K, k Key) {
	list := slices.DeleteFunc(lists[at], func(o claimant) bool { return o.Key == k })
	if lists[at] = list; len(list) == 0 {
		delete(lists, at)
	}
}

// Outside lists the claimed addresses outside the cluster.
func (c *Claims) Outside() iter.Seq[netip.Addr] { return maps.Keys(c.outside) }

// At lists the Services with claims at an address outside.
func (c *Claims) At(a netip.Addr) []Key { return slices.Collect(maps.Keys(c.outside[a])) }

// external lists the balanced addresses outside the cluster. A load balancer in mode Proxy balances its own.
func (s *Service) external() []netip.Addr {
	out, has := slices.Clone(s.ExternalIPs), setOf(s.ExternalIPs)
	for _, in := range s.Ingress {
		if has == nil {
			has = map[netip.Addr]bool{}
		}
		if !in.Proxy && !has[in.Addr] {
			out, has[in.Addr] = append(out, in.Addr), true
		}
	}
	return out
}

// maxConflicts limits the lost claims with a Problem of their own.
const maxConflicts = 10

// LoseTo records lost claims of r as Problems.
func (r *Resolved) LoseTo(lost map[Claim]Key) {
	if r.Lost = lost; len(lost) == 0 {
		return
	}
	addrs, told := slices.Concat(r.ClusterIPs, r.Outside), 0
	for _, p := range r.Ports {
		for _, c := range claims(addrs, p) {
			other, ok := lost[c]
			if !ok {
				continue
			}
			if told++; told > maxConflicts {
				r.Untold = len(lost) - maxConflicts
				return
			}
			who := "another service"
			if other != (Key{}) {
				who = "service " + other.String()
			}
			r.problem("PortConflict", "%s of service %s is in use by %s: choose another one", c, r.Key, who)
		}
	}
}

// claims lists the claims for port p of a Service with some addresses, in a fixed order.
func claims(addrs []netip.Addr, p Port) []Claim {
	var out []Claim
	for _, a := range addrs {
		out = append(out, Claim{a, p.Protocol, p.Port})
	}
	if p.NodePort != 0 {
		out = append(out, Claim{netip.Addr{}, p.Protocol, p.NodePort})
	}
	return out
}

// Has reports whether r has the right to a frontend.
func (r *Resolved) Has(c Claim) bool {
	_, lost := r.Lost[c]
	return !lost
}

// hostPorts are the ports at its own addresses without which a host is not part of the cluster: ssh, etcd, tunnels,
// Open vSwitch, OVN's databases, the kubelet.
func hostPorts(p corev1.Protocol) []uint16 {
	switch p {
	case corev1.ProtocolTCP:
		return []uint16{22, 2379, 2380, 6640, 6641, 6642, 6643, 6644, 10250}
	case corev1.ProtocolUDP:
		return []uint16{4789, 6081, 7471}
	}
	return nil
}

// OfNodes returns the other Service with a port of every node.
func (r *Resolved) OfNodes(p corev1.Protocol, port uint16) (Key, bool) {
	other, ok := r.Taken[Claim{Protocol: p, Port: port}]
	return other, ok
}

// OfHost reports whether a port at the address of a host is unavailable to Services.
func OfHost(p corev1.Protocol, port uint16) bool { return slices.Contains(hostPorts(p), port) }

// WantsAny reports whether one of some addresses is an address outside of s.
func (s *Service) WantsAny(addrs map[netip.Addr]bool) bool {
	return len(addrs) > 0 && slices.ContainsFunc(s.Outside, func(a netip.Addr) bool { return addrs[a] })
}
