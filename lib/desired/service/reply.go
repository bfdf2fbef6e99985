package service

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// MaxReplies bounds the addresses and ports of endpoints with external policy Local on one node, for all Services
// together: each is a term of a match. MaxOwnReplies is the part of it for the Services of one namespace.
const (
	MaxReplies    = 2000
	MaxOwnReplies = 1000
)

// A Reply is the source of replies of an endpoint.
type Reply struct {
	Addr     netip.Addr
	Protocol corev1.Protocol
	Port     uint16
}

// Replies lists the sources of replies of r's endpoints on a node. There are none unless the external policy is
// Local, and none if r is Refused on the node.
func (r *Resolved) Replies(node string) (out []Reply) {
	if !r.Ours || !r.ExternalLocal || r.Refused[node] > 0 {
		return nil
	}
	for i, p := range r.Ports {
		for _, e := range r.Endpoints[i] {
			if e.Node == node {
				out = append(out, Reply{e.Addr, p.Protocol, e.Port})
			}
		}
	}
	return slices.Clip(out)
}

// FromOutside are the Local endpoints on a node for connections from outside: none if the Service is Refused there.
func (f Frontend) FromOutside(node string) Endpoints {
	if f.Resolved.Refused[node] > 0 {
		return nil
	}
	return f.Local(node)
}

// Candidates is an upper bound of the number of Replies of s from some subnets, with some slices: endpoints in several
// slices count several times.
func (s Service) Candidates(all []Slice, subnets []netip.Prefix) (n int) {
	other := func(h Host) bool {
		return h.State == Unready || !slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(h.Addr) })
	}
	for _, sl := range all {
		sl.Endpoints = slices.DeleteFunc(slices.Clone(sl.Endpoints), other)
		for _, p := range s.Ports {
			n += candidates(p, []Slice{sl})
		}
	}
	return n
}

// RefuseOn records the nodes with Refused connections, as a Problem.
func (r *Resolved) RefuseOn(nodes map[string]int) {
	r.Refused = nodes
	if len(nodes) == 0 || !r.Ours || !r.ExternalLocal {
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(nodes)))
	r.AddProblem("TooManyEndpoints", "service %s with policy Local takes no connections from outside on %d nodes: on node %s its endpoints have %d ports, more than older services leave of %d for namespace %s and %d for all: use fewer ports or endpoints there", r.Key, len(nodes), first, nodes[first], MaxOwnReplies, r.Namespace, MaxReplies)
}
