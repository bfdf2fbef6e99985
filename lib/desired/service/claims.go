package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A Claim is a way in that only one Service can have.
type Claim struct {
	Addr     netip.Addr // the zero Addr is that of every node
	Protocol corev1.Protocol
	Port     uint16
}

// String names the claim as people do: "203.0.113.9:80/TCP", "nodePort 30080/TCP".
func (c Claim) String() string {
	if !c.Addr.IsValid() {
		return fmt.Sprintf("nodePort %d/%s", c.Port, c.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(c.Addr, c.Port), c.Protocol)
}

// Claims says which Service has a way in that several want. Cluster addresses,
// which Kubernetes hands out, come before what users write; then the older
// Service is first. The zero value is empty.
type Claims struct {
	wanted  map[Claim][]claimant // the first of each has it
	claimed map[Key][]Claim
}

// A claimant is a Service that wants a way in.
type claimant struct {
	Service // no more than what Before needs
	own     bool
}

func (a claimant) before(b claimant) int {
	switch {
	case a.own != b.own && a.own, a.own == b.own && a.Before(b.Service):
		return -1
	}
	return 1
}

// Put records what s wants now, and returns the other Services that this gives
// something or takes something from.
func (c *Claims) Put(s Service) []Key {
	if c.wanted == nil {
		c.wanted, c.claimed = map[Claim][]claimant{}, map[Key][]Claim{}
	}
	before := c.rivals(s.Key)
	c.drop(s.Key)
	if !s.Ours {
		return before
	}
	id := Service{Key: s.Key, Created: s.Created}
	for _, p := range s.Ports {
		for _, a := range s.ClusterIPs {
			c.add(Claim{a, p.Protocol, p.Port}, claimant{id, true})
		}
		for _, a := range s.external() {
			c.add(Claim{a, p.Protocol, p.Port}, claimant{id, false})
		}
		if p.NodePort != 0 {
			c.add(Claim{netip.Addr{}, p.Protocol, p.NodePort}, claimant{id, false})
		}
	}
	return append(before, c.rivals(s.Key)...)
}

// Remove forgets a Service and returns the others that get something by that.
func (c *Claims) Remove(k Key) []Key {
	others := c.rivals(k)
	c.drop(k)
	return others
}

// Compact gives back the room of claims that are gone.
func (c *Claims) Compact() {
	c.wanted, c.claimed = maps.Collect(maps.All(c.wanted)), maps.Collect(maps.All(c.claimed))
}

// Lost returns which of its claims a Service does not get, and who has them.
func (c *Claims) Lost(k Key) map[Claim]Key {
	var lost map[Claim]Key
	for _, claim := range c.claimed[k] {
		if first := c.wanted[claim][0]; first.Key != k {
			if lost == nil {
				lost = map[Claim]Key{}
			}
			lost[claim] = first.Key
		}
	}
	return lost
}

// Holder returns the Service that has a way in. It reports false if none has.
func (c *Claims) Holder(claim Claim) (Key, bool) {
	list := c.wanted[claim]
	if len(list) == 0 {
		return Key{}, false
	}
	return list[0].Key, true
}

func (c *Claims) add(claim Claim, who claimant) {
	list := c.wanted[claim]
	if slices.ContainsFunc(list, func(o claimant) bool { return o.Key == who.Key }) {
		return
	}
	list = append(list, who)
	slices.SortFunc(list, claimant.before)
	c.wanted[claim] = list
	c.claimed[who.Key] = append(c.claimed[who.Key], claim)
}

func (c *Claims) drop(k Key) {
	for _, claim := range c.claimed[k] {
		list := slices.DeleteFunc(c.wanted[claim], func(o claimant) bool { return o.Key == k })
		if c.wanted[claim] = list; len(list) == 0 {
			delete(c.wanted, claim)
		}
	}
	delete(c.claimed, k)
}

// rivals lists the Services that want what k wants.
func (c *Claims) rivals(k Key) []Key {
	var out []Key
	for _, claim := range c.claimed[k] {
		for _, o := range c.wanted[claim] {
			if o.Key != k {
				out = append(out, o.Key)
			}
		}
	}
	return out
}

// external lists the addresses outside the cluster at which s is balanced. A
// load balancer in mode Proxy does that itself.
func (s Service) external() []netip.Addr {
	out := slices.Clone(s.ExternalIPs)
	for _, in := range s.Ingress {
		if !in.Proxy && !slices.Contains(out, in.Addr) {
			out = append(out, in.Addr)
		}
	}
	return out
}

// LoseTo records the claims that r does not get, as Problems.
func (r *Resolved) LoseTo(lost map[Claim]Key) {
	r.Lost = lost
	for _, p := range r.Ports {
		for _, c := range r.claims(p) {
			if other, ok := lost[c]; ok {
				r.problem("PortConflict", "%s of service %s is in use by service %s: choose another one", c, r.Key, other)
			}
		}
	}
}

// claims lists what r wants for port p, in a fixed order.
func (r *Resolved) claims(p Port) []Claim {
	var out []Claim
	for _, a := range slices.Concat(r.ClusterIPs, r.external()) {
		out = append(out, Claim{a, p.Protocol, p.Port})
	}
	if p.NodePort != 0 {
		out = append(out, Claim{netip.Addr{}, p.Protocol, p.NodePort})
	}
	return out
}

// Has reports whether r has a way in: nobody has a better right to it.
func (r *Resolved) Has(c Claim) bool {
	_, lost := r.Lost[c]
	return !lost
}
