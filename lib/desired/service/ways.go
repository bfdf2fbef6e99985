package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
)

// A Way is one way into a Service, for people.
type Way struct {
	// Name is what Kubernetes calls it: "clusterIP 172.16.1.10:80/TCP".
	Name string
	// Endpoints answer. There is none where all is refused.
	Endpoints Endpoints
	// Notes say what is special, in the words of Kubernetes.
	Notes []string
	// Balancers are the load balancers that have it.
	Balancers []string
}

// Ways lists the ways into r that it has, in a fixed order.
func (r *Resolved) Ways(at Surroundings) []Way {
	var out []Way
	for i, p := range r.Ports {
		for _, a := range r.ClusterIPs {
			out = append(out, r.clusterWays(i, p, a, at)...)
		}
		for _, a := range r.outer(p, at) {
			out = append(out, r.outerWay(i, p, a, at))
		}
		if c := (Claim{Protocol: p.Protocol, Port: p.NodePort}); p.NodePort != 0 && r.Has(c) {
			out = append(out, Way{
				Name: c.String(), Endpoints: r.Endpoints[i].Cluster(), Notes: r.notes(r.externalNotes()...), Balancers: r.nodePortBalancers(p, at),
			})
		}
	}
	return out
}

// clusterWays are those by a cluster address: several, where nodes differ in who
// answers.
func (r *Resolved) clusterWays(i int, p Port, a netip.Addr, at Surroundings) (out []Way) {
	c, es, name := Claim{a, p.Protocol, p.Port}, r.Endpoints[i].Of(a), r.balancerName(p.Protocol)
	way := Way{Name: "clusterIP " + c.String(), Endpoints: es.Cluster(), Balancers: []string{name}}
	switch {
	case !r.Has(c):
		return nil // a Problem says so
	case r.isNear(es):
		for _, b := range r.nearBalancers(p.Protocol, at) {
			if _, ok := b.vips[key(a, p.Port)]; ok {
				way.Endpoints, way.Balancers = r.nearest(es, b.nodes[0]), []string{name + nearInfix + b.place}
				way.Notes = r.notes("for clients of " + strings.ReplaceAll(b.place, "/", " "))
				out = append(out, way)
			}
		}
		return out
	case r.InternalLocal:
		way.Notes, way.Balancers = r.notes("each on its own node only"), []string{name + nodeSuffix(a)}
	default:
		way.Notes = r.notes()
	}
	return []Way{way}
}

// outerWay is that by an external address, or by one of a load balancer.
func (r *Resolved) outerWay(i int, p Port, a netip.Addr, at Surroundings) Way {
	kind, notes := "load balancer IP", r.externalNotes()
	if slices.Contains(r.ExternalIPs, a) {
		kind = "external IP"
	}
	if slices.Contains(r.guarded(), a) {
		notes = append(notes, "only from "+ipnet.Join(r.SourceRanges))
	}
	name := r.balancerName(p.Protocol)
	way := Way{
		Name: fmt.Sprintf("%s %s", kind, Claim{a, p.Protocol, p.Port}), Endpoints: r.Endpoints[i].Of(a).Cluster(),
		Notes: r.notes(notes...), Balancers: []string{name},
	}
	switch {
	case at.isHosts(a):
		way.Balancers = r.hostBalancers(name, a, at)
	case !r.ExternalLocal:
	case r.byGateway(at.Subnets):
		way.Balancers = append(way.Balancers, name+localInfix+"GATEWAY")
	case len(way.Endpoints) == 0:
		way.Balancers = append(way.Balancers, name+refusedSuffix)
	default:
		way.Balancers = append(way.Balancers, name+localSuffix(a))
	}
	return way
}

// hostBalancers are the load balancers that have an address outside that is a
// host's.
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

// notes adds what concerns all ways in.
func (r *Resolved) notes(special ...string) []string {
	if r.Affinity > 0 {
		special = append(special, fmt.Sprintf("clients stay for %d s", min(r.Affinity, maxAffinity)))
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

// nodePortBalancers are the load balancers that have the NodePort of a port.
func (r *Resolved) nodePortBalancers(p Port, at Surroundings) (out []string) {
	name, byGateway := r.balancerName(p.Protocol), r.byGateway(at.Subnets)
	if r.Affinity > 0 {
		out = []string{name + nodesSuffix}
		if !byGateway && len(at.Gateways) > 0 {
			out = append(out, name+nodesSuffix+"/GATEWAY")
		}
	}
	for f, any := range families() {
		if !r.hasFamily(f) || r.Affinity > 0 {
			continue
		}
		if out = append(out, name+nodeSuffix(any)); r.ExternalLocal && !byGateway {
			out = append(out, name+localSuffix(any))
		}
	}
	if byGateway {
		out = append(out, name+localInfix+"GATEWAY")
	}
	return out
}

func nodeSuffix(a netip.Addr) string  { return fmt.Sprintf("/node%d", 4+2*family(a)) }
func localSuffix(a netip.Addr) string { return fmt.Sprintf("/local%d", 4+2*family(a)) }

const (
	// nodesSuffix is that of what is at addresses of hosts, of both families.
	nodesSuffix = "/nodes"
	// localInfix is before the gateway for which a load balancer is.
	localInfix = "/local/"
	// refusedSuffix is that of ways in through gateways behind which is nobody.
	refusedSuffix = "/refused"
	// nearInfix is before the place for which a load balancer of cluster addresses is.
	nearInfix = "/near/"
)
