package loadbalancer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
)

// A Summary is a frontend for people.
type Summary struct {
	// Name has the field and the address, port and protocol: "clusterIP 172.16.1.10:80/TCP".
	Name string
	// Addr is set if it is an address outside.
	Addr netip.Addr
	// Endpoints are those for new connections. Without any, connections are rejected.
	Endpoints service.Endpoints
	// Notes describe exceptions in Kubernetes' terms.
	Notes []string
	// Balancers are the IDs of the load balancers with the frontend.
	Balancers []string
}

// Summaries returns the frontends of the Service for people, in the order of Frontends. A NodePort has one for both families,
// and a cluster IP with hints one for each group of nodes.
func (l *Balancers) Summaries() []Summary {
	var out []Summary
	for _, frontends := range l.frontends {
		nodePort := Summary{Notes: l.notes(l.externalNotes()...)}
		for _, f := range frontends {
			switch {
			case f.Kind == service.ClusterIP:
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
func (l *Balancers) clusterSummaries(f service.Frontend) (out []Summary) {
	name := l.balancerName(f.Protocol())
	s := Summary{Name: "clusterIP " + f.Claim().String(), Endpoints: l.answering(f).all, Balancers: []string{name}}
	switch {
	case l.near.differs[f.Index][f.Family]:
		for _, at := range l.near.places {
			if near, _ := l.near.at(f, at); len(near) > 0 {
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
func (l *Balancers) outsideSummary(f service.Frontend) Summary {
	kind, notes := "external IP", l.externalNotes()
	if f.Kind == service.LoadBalancerIP {
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
	case l.at.IsHosts(f.Addr):
		s.Balancers = l.hostBalancers(name, f.Addr)
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
func (l *Balancers) hostBalancers(name string, a netip.Addr) []string {
	out, infix := []string{name + nodesSuffix}, nodesSuffix+"/"
	if l.ExternalLocal {
		infix = localInfix
	}
	for _, g := range slices.Sorted(maps.Keys(l.at.Gateways)) {
		if slices.Contains(l.at.Gateways[g].Addrs, a) {
			out = append(out, name+infix+g)
		}
	}
	return out
}

// notes adds the notes of all frontends.
func (l *Balancers) notes(special ...string) []string {
	if l.Affinity > 0 {
		special = append(special, "clients stay by their address")
	}
	return special
}

func (l *Balancers) externalNotes() (out []string) {
	if l.ExternalLocal {
		out = append(out, "from outside each on its own node only")
	}
	if l.HealthCheckNodePort != 0 {
		out = append(out, fmt.Sprintf("health checks at node:%d", l.HealthCheckNodePort))
	}
	return out
}

// nodePortBalancers are the load balancers with a NodePort.
func (l *Balancers) nodePortBalancers(f service.Frontend) []string {
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
