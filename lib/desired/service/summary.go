package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
)

// A Summary is a frontend for people.
type Summary struct {
	// Name has the field and the address, port and protocol: "clusterIP 172.16.1.10:80/TCP".
	Name string
	// Addr is set if it is an address outside.
	Addr netip.Addr
	// Endpoints are those for new connections. Without any, connections are rejected.
	Endpoints Endpoints
	// Notes describe exceptions in Kubernetes' terms.
	Notes []string
	// Balancers are the IDs of the load balancers with the frontend.
	Balancers []string
}

// Summaries returns the frontends of r for people, in the order of Frontends. A NodePort has one for both families,
// and a cluster IP with hints one for each group of nodes.
func (r *Resolved) Summaries(at Surroundings) []Summary {
	var out []Summary
	l := r.layout(at)
	for _, frontends := range l.frontends {
		nodePort := Summary{Notes: r.notes(r.externalNotes()...)}
		for _, f := range frontends {
			switch {
			case f.Kind == ClusterIP:
				out = append(out, l.clusterSummaries(f)...)
			case f.IsOutside():
				out = append(out, l.outsideSummary(f))
			default:
				nodePort.Name, nodePort.Endpoints = f.Claim().String(), append(nodePort.Endpoints, l.answering(f).all...)
				nodePort.Balancers = append(nodePort.Balancers, l.nodePortBalancers(f)...)
			}
		}
		if nodePort.Name != "" {
			out = append(out, nodePort)
		}
	}
	return out
}

// clusterSummaries are those of a cluster IP: several, if nodes have different endpoints.
func (l *layout) clusterSummaries(f Frontend) (out []Summary) {
	name := l.balancerName(f.Protocol())
	s := Summary{Name: "clusterIP " + f.Claim().String(), Endpoints: l.answering(f).all, Balancers: []string{name}}
	switch {
	case l.differs[f.Index][f.Family]:
		for _, at := range l.places {
			if near, _ := l.near(f, at); len(near) > 0 {
				s.Endpoints, s.Balancers = near, []string{name + nearInfix + at.name}
				s.Notes = l.notes("for clients of " + strings.ReplaceAll(at.name, "/", " "))
				out = append(out, s)
			}
		}
		return out
	case l.InternalLocal:
		s.Notes, s.Balancers = l.notes("each on its own node only"), []string{name + nodeSuffix(f.Family)}
	default:
		s.Notes = l.notes()
	}
	return []Summary{s}
}

// outsideSummary is the summary of an external IP, or of an address of a load balancer.
func (l *layout) outsideSummary(f Frontend) Summary {
	kind, notes := "external IP", l.externalNotes()
	if f.Kind == LoadBalancerIP {
		kind = "load balancer IP"
	}
	if f.Guarded() {
		notes = append(notes, "only from "+ipnet.Join(l.SourceRanges))
	}
	name := l.balancerName(f.Protocol())
	s := Summary{
		Name: fmt.Sprintf("%s %s", kind, f.Claim()), Addr: f.Addr, Endpoints: l.answering(f).all,
		Notes: l.notes(notes...), Balancers: []string{name},
	}
	switch {
	case l.at.isHosts(f.Addr):
		s.Balancers = l.hostBalancers(name, f.Addr, l.at)
	case !l.ExternalLocal:
	case l.byGateway:
		s.Balancers = append(s.Balancers, name+localInfix+"GATEWAY")
	case len(s.Endpoints) == 0:
		s.Balancers = append(s.Balancers, name+refusedSuffix)
	default:
		s.Balancers = append(s.Balancers, name+localSuffix(f.Family))
	}
	return s
}

// hostBalancers are the load balancers with an address outside that is a host's.
func (r *Resolved) hostBalancers(name string, a netip.Addr, at Surroundings) []string {
	out, infix := []string{name + nodesSuffix}, nodesSuffix+"/"
	if r.ExternalLocal {
		infix = localInfix
	}
	for _, g := range slices.Sorted(maps.Keys(at.Gateways)) {
		if slices.Contains(at.Gateways[g].Addrs, a) {
			out = append(out, name+infix+g)
		}
	}
	return out
}

// notes adds the notes of all frontends.
func (r *Resolved) notes(special ...string) []string {
	if r.Affinity > 0 {
		special = append(special, "clients stay by their address")
	}
	return special
}

func (r *Resolved) externalNotes() (out []string) {
	if r.ExternalLocal {
		out = append(out, "from outside each on its own node only")
	}
	if r.HealthCheckNodePort != 0 {
		out = append(out, fmt.Sprintf("health checks at node:%d", r.HealthCheckNodePort))
	}
	return out
}

// nodePortBalancers are the load balancers with a NodePort.
func (l *layout) nodePortBalancers(f Frontend) []string {
	name := l.balancerName(f.Protocol())
	out := []string{name + nodeSuffix(f.Family)}
	switch {
	case l.byGateway:
		return append(out, name+localInfix+"GATEWAY")
	case l.ExternalLocal:
		return append(out, name+localSuffix(f.Family))
	}
	return out
}

func nodeSuffix(family int) string  { return fmt.Sprintf("/node%d", 4+2*family) }
func localSuffix(family int) string { return fmt.Sprintf("/local%d", 4+2*family) }

const (
	// nodesSuffix is for frontends at addresses of hosts, of both families.
	nodesSuffix = "/nodes"
	// sixSuffix is for IPv6 frontends with affinity, if IPv4 ones choose endpoints by another field.
	sixSuffix = "/ip6"
	// localInfix is before the gateway of a load balancer.
	localInfix = "/local/"
	// refusedSuffix is for frontends at gateways without any endpoint.
	refusedSuffix = "/refused"
	// nearInfix is before the place of a load balancer of cluster addresses.
	nearInfix = "/near/"
)
