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
	// Addr is set where it is an address outside.
	Addr netip.Addr
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
	l := r.layout(at)
	for i, p := range r.Ports {
		for _, a := range r.ClusterIPs {
			out = append(out, l.clusterWays(i, p, a)...)
		}
		for _, a := range l.outers[i] {
			out = append(out, l.outerWay(i, p, a))
		}
		if l.nodePort(p) {
			out = append(out, Way{
				Name: Claim{Protocol: p.Protocol, Port: p.NodePort}.String(), Endpoints: r.Endpoints[i].Cluster(), Notes: r.notes(r.externalNotes()...), Balancers: l.nodePortBalancers(p),
			})
		}
	}
	return out
}

// clusterWays are those by a cluster address: several, where nodes differ in who
// answers.
func (l *layout) clusterWays(i int, p Port, a netip.Addr) (out []Way) {
	c, es, name := Claim{a, p.Protocol, p.Port}, l.Endpoints[i].Of(a), l.balancerName(p.Protocol)
	way := Way{Name: "clusterIP " + c.String(), Endpoints: es.Cluster(), Balancers: []string{name}}
	switch {
	case !l.Has(c):
		return nil // a Problem says so
	case l.differs[i][family(a)]:
		for _, at := range l.places {
			if near, _ := l.near(i, a, at); len(near) > 0 {
				way.Endpoints, way.Balancers = near, []string{name + nearInfix + at.name}
				way.Notes = l.notes("for clients of " + strings.ReplaceAll(at.name, "/", " "))
				out = append(out, way)
			}
		}
		return out
	case l.InternalLocal:
		way.Notes, way.Balancers = l.notes("each on its own node only"), []string{name + nodeSuffix(a)}
	default:
		way.Notes = l.notes()
	}
	return []Way{way}
}

// outerWay is that by an external address, or by one of a load balancer.
func (l *layout) outerWay(i int, p Port, a netip.Addr) Way {
	kind, notes := "load balancer IP", l.externalNotes()
	if slices.Contains(l.ExternalIPs, a) {
		kind = "external IP"
	}
	if slices.Contains(l.guarded(), a) {
		notes = append(notes, "only from "+ipnet.Join(l.SourceRanges))
	}
	name := l.balancerName(p.Protocol)
	way := Way{
		Name: fmt.Sprintf("%s %s", kind, Claim{a, p.Protocol, p.Port}), Addr: a, Endpoints: l.Endpoints[i].Of(a).Cluster(),
		Notes: l.notes(notes...), Balancers: []string{name},
	}
	switch {
	case l.at.isHosts(a):
		way.Balancers = l.hostBalancers(name, a, l.at)
	case !l.ExternalLocal:
	case l.byGateway:
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

// nodePortBalancers are the load balancers that have the NodePort of a port.
func (l *layout) nodePortBalancers(p Port) (out []string) {
	name := l.balancerName(p.Protocol)
	for f, any := range families() {
		if !l.hasFamily(f) {
			continue
		}
		if out = append(out, name+nodeSuffix(any)); l.ExternalLocal && !l.byGateway {
			out = append(out, name+localSuffix(any))
		}
	}
	if l.byGateway {
		out = append(out, name+localInfix+"GATEWAY")
	}
	return out
}

func nodeSuffix(a netip.Addr) string  { return fmt.Sprintf("/node%d", 4+2*family(a)) }
func localSuffix(a netip.Addr) string { return fmt.Sprintf("/local%d", 4+2*family(a)) }

const (
	// nodesSuffix is that of what is at addresses of hosts, of both families.
	nodesSuffix = "/nodes"
	// sixSuffix is that of IPv6 frontends with affinity, where IPv4 ones choose endpoints by another field.
	sixSuffix = "/ip6"
	// localInfix is before the gateway for which a load balancer is.
	localInfix = "/local/"
	// refusedSuffix is that of ways in through gateways behind which is nobody.
	refusedSuffix = "/refused"
	// nearInfix is before the place for which a load balancer of cluster addresses is.
	nearInfix = "/near/"
)
