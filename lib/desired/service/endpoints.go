package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/names"
)

// A Slice is what we need to know of an EndpointSlice.
type Slice struct {
	Name      string // within the Service's namespace
	Service   Key
	Ports     []SlicePort // sorted
	Endpoints []Host      // sorted by node
	Problems  []Problem
}

// A SlicePort is a port on which every endpoint of a slice listens.
type SlicePort struct {
	Name     string
	Protocol corev1.Protocol
	Port     uint16
}

// A Host is an address of a slice, and its state.
type Host struct {
	Addr  netip.Addr
	Node  string // "" if unknown
	State State
	// Zones and Nodes are for whom the control plane means the endpoint:
	// trafficDistribution and topology aware routing. Empty: no hints.
	Zones, Nodes []string
}

// A State is whether an endpoint can be used.
type State uint8

// States of endpoints. Serving and Draining differ in that new connections go to
// endpoints that drain only where nothing else is left (KEP-1669).
const (
	Unready  State = iota // not to be used
	Serving               // ready
	Draining              // terminating, but still answering
)

// SliceKey returns which slice s is, and of which Service. It reports false for
// slices of nobody, or of a Service that nobody balances.
func SliceKey(s *discoveryv1.EndpointSlice) (name string, of Key, ok bool) {
	svc := s.Labels[discoveryv1.LabelServiceName]
	_, headless := s.Labels[names.LabelHeadless]
	_, proxied := s.Labels[names.LabelServiceProxy]
	return s.Name, Key{s.Namespace, svc}, svc != "" && !headless && !proxied
}

// NewSlice takes from s what we need. Strings that many endpoints share are
// passed through intern.
func NewSlice(s *discoveryv1.EndpointSlice, intern func(string) string) Slice {
	out := Slice{}
	out.Name, out.Service, _ = SliceKey(s)
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		out.problem("BadEndpoint", "endpoint slice %s of service %s has addresses of type FQDN, which are not balanced: use IPv4 or IPv6", s.Name, out.Service)
		return out
	}
	for _, p := range s.Ports {
		if port, ok := out.port(p); ok {
			out.Ports = append(out.Ports, port)
		}
	}
	slices.SortFunc(out.Ports, func(a, b SlicePort) int {
		return cmp.Or(a.compare(Port{Name: b.Name, Protocol: b.Protocol}), cmp.Compare(a.Port, b.Port))
	})
	for _, e := range s.Endpoints {
		out.endpoint(s, e, intern)
	}
	slices.SortStableFunc(out.Endpoints, func(a, b Host) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// On returns s with the endpoints on one node only.
func (s Slice) On(node string) Slice {
	first, _ := slices.BinarySearchFunc(s.Endpoints, node, func(h Host, n string) int { return strings.Compare(h.Node, n) })
	last := first
	for last < len(s.Endpoints) && s.Endpoints[last].Node == node {
		last++
	}
	s.Endpoints = s.Endpoints[first:last]
	return s
}

// Nodes returns the nodes on which two slices differ, and all nodes of both if they differ in their ports.
func (s Slice) Nodes(o Slice) []string {
	var out []string
	a, b := s.Endpoints, o.Endpoints
	same := slices.Equal(s.Ports, o.Ports)
	for len(a)+len(b) > 0 {
		node := ""
		switch {
		case len(b) == 0, len(a) > 0 && a[0].Node <= b[0].Node:
			node = a[0].Node
		default:
			node = b[0].Node
		}
		here, there := Slice{Endpoints: a}.On(node).Endpoints, Slice{Endpoints: b}.On(node).Endpoints
		if !same || !slices.EqualFunc(here, there, Host.equal) {
			out = append(out, node)
		}
		a, b = a[len(here):], b[len(there):]
	}
	return out
}

// equal reports whether two endpoints are the same for the nodes they are on.
func (h Host) equal(o Host) bool { return h.Addr == o.Addr && h.Node == o.Node && h.State == o.State }

// compare orders ports by what Services know them by.
func (p SlicePort) compare(of Port) int {
	return cmp.Or(strings.Compare(p.Name, of.Name), strings.Compare(string(p.Protocol), string(of.Protocol)))
}

func (s *Slice) problem(reason, format string, args ...any) {
	s.Problems = append(s.Problems, Problem{reason, fmt.Sprintf(format, args...)})
}

func (s *Slice) port(p discoveryv1.EndpointPort) (SlicePort, bool) {
	out := SlicePort{Protocol: corev1.ProtocolTCP}
	if p.Name != nil {
		out.Name = *p.Name
	}
	if p.Protocol != nil {
		out.Protocol = *p.Protocol
	}
	if p.Port == nil {
		return out, false // "all ports": not for Services with a cluster IP
	}
	n, ok := portNumber(*p.Port)
	if !ok || n == 0 || !known(out.Protocol) {
		s.problem("BadEndpoint", "port %d/%s in endpoint slice %s of service %s is no port: give 1 to 65535 of TCP, UDP or SCTP", *p.Port, out.Protocol, s.Name, s.Service)
		return out, false
	}
	if out.Protocol == corev1.ProtocolUDP && OfHost(out.Protocol, n) {
		// Hosts send to endpoints with their own addresses, by which tunnels are known.
		s.problem("BadEndpoint", "port %d/%s in endpoint slice %s of service %s is that of tunnels between hosts: no service leads there, let the endpoints listen at another one", n, out.Protocol, s.Name, s.Service)
		return out, false
	}
	out.Port = n
	return out, true
}

func (s *Slice) endpoint(from *discoveryv1.EndpointSlice, e discoveryv1.Endpoint, intern func(string) string) {
	h := Host{State: state(e.Conditions)}
	if e.NodeName != nil {
		h.Node = intern(*e.NodeName)
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			h.Zones = append(h.Zones, intern(z.Name))
		}
		for _, n := range e.Hints.ForNodes {
			h.Nodes = append(h.Nodes, intern(n.Name))
		}
	}
	// Kubernetes defines the first address only; the others, if there are any,
	// belong to the same endpoint.
	for _, text := range e.Addresses[:min(1, len(e.Addresses))] {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Is4() != (from.AddressType == discoveryv1.AddressTypeIPv4) {
			s.problem("BadEndpoint", "endpoint %q of service %s is no %s address: correct endpoint slice %s", text, s.Service, from.AddressType, s.Name)
			continue
		}
		if k := kind(a); k != "" {
			s.problem("BadEndpoint", "endpoint %s of service %s is %s, which means another host on each host: give an address of a pod or of a host", a, s.Service, k)
			continue
		}
		h.Addr = a
		s.Endpoints = append(s.Endpoints, h)
	}
}

// state follows the API: no word on ready means ready, and no word on serving
// means as ready says.
func state(c discoveryv1.EndpointConditions) State {
	ready := c.Ready == nil || *c.Ready
	serving := c.Serving == nil && ready || c.Serving != nil && *c.Serving
	terminating := c.Terminating != nil && *c.Terminating
	switch {
	case ready:
		return Serving
	case serving && terminating:
		return Draining
	}
	return Unready
}

// An Endpoint is one backend of one port of a Service. All ports share the Host.
type Endpoint struct {
	*Host
	Port uint16
}

// AddrPort is the address on which the endpoint listens.
func (e Endpoint) AddrPort() netip.AddrPort { return netip.AddrPortFrom(e.Addr, e.Port) }

// A Node is what decides which endpoints a node prefers.
type Node struct{ Name, Zone string }

// Endpoints are all usable endpoints of one port, of both families, sorted by
// address: IPv4 first. Those that drain are among them.
type Endpoints []Endpoint

// Of returns the endpoints of one family, which is that of a.
func (es Endpoints) Of(a netip.Addr) Endpoints {
	six, _ := slices.BinarySearchFunc(es, 1, func(e Endpoint, f int) int { return family(e.Addr) - f })
	if a.Is4() {
		return slices.Clip(es[:six])
	}
	return es[six:]
}

// Cluster returns the endpoints for connections that any node may serve: those
// that are ready, or if there are none those that drain.
func (es Endpoints) Cluster() Endpoints {
	if ready := es.in(Serving); len(ready) > 0 {
		return ready
	}
	return es.in(Draining)
}

// ClusterFrom returns what Cluster returns for connections that start on node,
// which prefers some endpoints if all have hints and some are meant for it.
func (es Endpoints) ClusterFrom(node Node) Endpoints {
	all := es.Cluster()
	if len(all) == 0 || all[0].State != Serving {
		return all
	}
	if near, hinted := all.meant(func(h *Host) []string { return h.Nodes }, node.Name); hinted && len(near) > 0 {
		return near
	}
	if near, hinted := all.meant(func(h *Host) []string { return h.Zones }, node.Zone); hinted && len(near) > 0 {
		return near
	}
	return all
}

// Local returns the endpoints on a node for the traffic policy Local: those that
// are ready, or if there are none on the node those that drain.
func (es Endpoints) Local(node string) Endpoints {
	return es.filter(func(e *Endpoint) bool { return e.Node == node && node != "" }).Cluster()
}

// Hinted reports whether nodes differ in which endpoints they prefer.
func (es Endpoints) Hinted() bool {
	all := es.Cluster()
	_, nodes := all.meant(func(h *Host) []string { return h.Nodes }, "")
	_, zones := all.meant(func(h *Host) []string { return h.Zones }, "")
	return len(all) > 0 && all[0].State == Serving && (nodes || zones)
}

// meant returns the endpoints that hints mean for who. It reports false unless
// every endpoint has hints of the kind: without, they are not to be relied on.
func (es Endpoints) meant(hints func(*Host) []string, who string) (Endpoints, bool) {
	for _, e := range es {
		if len(hints(e.Host)) == 0 {
			return nil, false
		}
	}
	return es.filter(func(e *Endpoint) bool { return slices.Contains(hints(e.Host), who) }), true
}

func (es Endpoints) in(s State) Endpoints {
	return es.filter(func(e *Endpoint) bool { return e.State == s })
}

// filter returns the endpoints to keep: es itself if that is all.
func (es Endpoints) filter(keep func(*Endpoint) bool) Endpoints {
	n := 0
	for i := range es {
		if keep(&es[i]) {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case len(es):
		return es
	}
	out := make(Endpoints, 0, n)
	for i := range es {
		if keep(&es[i]) {
			out = append(out, es[i])
		}
	}
	return out
}

// A Resolved is a Service with its endpoints.
type Resolved struct {
	Service
	Endpoints []Endpoints // of each of Service.Ports
	// Served is how many of Service.Ports, the first, are within the limits of Resolve.
	Served int
	// Listed are those of them that slices have endpoints for, ready or not.
	Listed []Port
	// Candidates is how many endpoints the slices have for these ports, also those that are not used.
	Candidates int
	// Lost are ways in that another Service has: see Claims.
	Lost map[Claim]Key
	// Untold is how many of them are not among Problems.
	Untold int
	// Taken are ports that another Service has of every node: see Claims.
	Taken map[Claim]Key
	// Refused are the nodes on which r has more Candidates than older Services leave of MaxReplies, and how many. There r
	// with external policy Local takes no connections from outside: replies would have no way back.
	Refused map[string]int
}

// MaxEndpoints is how many endpoints of a port and family are used. More would
// not fit into one group of Open vSwitch.
const MaxEndpoints = 1000

// Resolve joins a Service and its slices, in any order. Endpoints belong to the
// port of the same name and protocol. An endpoint that is in several slices, as
// it is while one replaces the other, counts once, in its best state.
func Resolve(s Service, slices []Slice) Resolved {
	r := Resolved{Service: s, Endpoints: make([]Endpoints, len(s.Ports))}
	r.Problems = append([]Problem(nil), s.Problems...)
	for _, sl := range sorted(slices) {
		r.Problems = append(r.Problems, sl.Problems...)
	}
	room, look := maxBackends, maxCandidates
	for i, p := range s.Ports {
		n := candidates(p, slices)
		if look -= max(n, len(slices)); look < 0 {
			r.problem("TooManyEndpoints", "service %s has no endpoints from port %d/%s on: its %d endpoint slices have more than %d in all: split the service", s.Key, p.Port, p.Protocol, len(slices), maxCandidates)
			break
		}
		es, more := collect(p, slices, n)
		for f, of := range []string{"IPv4", "IPv6"} {
			if more[f] {
				r.problem("TooManyEndpoints", "port %d/%s of service %s has more than %d %s endpoints, the first of which are used: split the service", p.Port, p.Protocol, s.Key, MaxEndpoints, of)
			}
		}
		cost := len(es) * (1 + len(s.ClusterIPs) + len(s.ExternalIPs) + len(s.Ingress))
		if cost > room {
			r.problem("TooManyEndpoints", "service %s has no endpoints from port %d/%s on: with its %d at each of its addresses it would have more than %d in all: split the service", s.Key, p.Port, p.Protocol, len(es), maxBackends)
			break
		}
		r.Endpoints[i], r.Served, r.Candidates, room = es, i+1, r.Candidates+n, room-cost
		if n > 0 {
			r.Listed = append(r.Listed, p)
		}
	}
	return r
}

// maxBackends is how many endpoints a Service has in all, counted anew for each port
// and way in: more would not fit into a message to the database, and whoever writes
// Services and slices could choke it.
const maxBackends = 200_000

// maxCandidates is how many endpoints of slices are looked at for all ports, those counted that are in several slices
// or cannot be used, and at least one of each slice, even one without the port. It bounds the time of Resolve.
const maxCandidates = 100_000

// candidates is how many endpoints slices have for a port.
func candidates(p Port, all []Slice) (n int) {
	for _, s := range all {
		first, _ := slices.BinarySearchFunc(s.Ports, p, SlicePort.compare)
		for _, sp := range s.Ports[first:] {
			if sp.compare(p) != 0 {
				break
			}
			n += len(s.Endpoints)
		}
	}
	return n
}

func sorted(all []Slice) []Slice {
	return slices.SortedFunc(slices.Values(all), func(a, b Slice) int { return cmp.Compare(a.Name, b.Name) })
}

// collect gathers the usable endpoints of a port, which has so many candidates. In each family it keeps the first
// MaxEndpoints, those that are ready before others. It reports in which families there are more.
func collect(p Port, all []Slice, candidates int) (out Endpoints, more [2]bool) {
	var few [2][Draining + 1]first
	if candidates <= MaxEndpoints {
		few[0][Serving].kept = make(Endpoints, 0, candidates)
	}
	for _, s := range all {
		start, _ := slices.BinarySearchFunc(s.Ports, p, SlicePort.compare)
		for _, sp := range s.Ports[start:] {
			if sp.compare(p) != 0 {
				break
			}
			for i := range s.Endpoints {
				if h := &s.Endpoints[i]; h.State != Unready {
					few[family(h.Addr)][h.State].add(Endpoint{h, sp.Port})
				}
			}
		}
	}
	for f := range few {
		ready, draining := few[f][Serving].sorted(), few[f][Draining].sorted()
		draining = slices.DeleteFunc(draining, func(e Endpoint) bool {
			_, found := slices.BinarySearchFunc(ready, e, Endpoint.compareAddrs)
			return found
		})
		both := append(ready, draining...)
		more[f] = len(both) > MaxEndpoints
		both = slices.Clip(both[:min(len(both), MaxEndpoints)])
		if len(ready) < len(both) {
			slices.SortFunc(both, Endpoint.compareAddrs)
		}
		if out == nil {
			out = both
		} else {
			out = append(out, both...)
		}
	}
	return out, more
}

func (e Endpoint) compareAddrs(o Endpoint) int { return e.AddrPort().Compare(o.AddrPort()) }

// compare orders endpoints in one state, the best of an address first.
func (e Endpoint) compare(o Endpoint) int {
	if c := e.compareAddrs(o); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(e.Node, o.Node), slices.Compare(e.Zones, o.Zones), slices.Compare(e.Nodes, o.Nodes))
}

// A first keeps the endpoints with the lowest addresses, without sorting all: twice MaxEndpoints, since as many may be
// those that another slice has in a better state.
type first struct {
	kept Endpoints
	last *Endpoint // of those to be kept, if they are as many
}

func (f *first) add(e Endpoint) {
	if f.last != nil && e.compareAddrs(*f.last) > 0 {
		return
	}
	if f.kept = append(f.kept, e); len(f.kept) >= 8*MaxEndpoints {
		f.sorted()
	}
}

func (f *first) sorted() Endpoints {
	slices.SortFunc(f.kept, Endpoint.compare)
	f.kept = slices.CompactFunc(f.kept, func(a, b Endpoint) bool { return a.AddrPort() == b.AddrPort() })
	if n := 2 * MaxEndpoints; len(f.kept) >= n {
		f.kept = f.kept[:n]
		last := f.kept[n-1]
		f.last = &last
	}
	return f.kept
}
