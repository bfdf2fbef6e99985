package service

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A Slice has the needed fields of an EndpointSlice.
type Slice struct {
	Name      string // within the Service's namespace
	Service   Key
	Ports     []SlicePort // sorted
	Endpoints []Host      // sorted by node
	Problems  []Problem
}

// A SlicePort is a port of all endpoints of a slice.
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
	// Zones and Nodes are the hints of the control plane (trafficDistribution, topology aware routing): clients there
	// prefer the endpoint. Empty: no hints.
	Zones, Nodes []string
}

// A State says whether an endpoint can be used.
type State uint8

// States of endpoints. New connections go to Draining endpoints only where no Serving one is left (KEP-1669).
const (
	Unready  State = iota // not to be used
	Serving               // ready
	Draining              // terminating, but still answering
)

// SliceKey returns the name and the Service of a slice. It reports false for slices without a Service, and for those
// of Services without load balancing.
func SliceKey(s *discoveryv1.EndpointSlice) (name string, of Key, ok bool) {
	svc := s.Labels[discoveryv1.LabelServiceName]
	_, headless := s.Labels[names.LabelHeadless]
	_, proxied := s.Labels[names.LabelServiceProxy]
	return s.Name, Key{s.Namespace, svc}, svc != "" && !headless && !proxied
}

// NewSlice returns the needed fields of s. Strings shared by many endpoints are passed through intern.
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

// Nodes returns the nodes with differences between two slices, or all nodes of both if the ports differ.
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

// equal reports whether two endpoints are the same for their nodes.
func (h Host) equal(o Host) bool { return h.Addr == o.Addr && h.Node == o.Node && h.State == o.State }

// compare orders ports by name and protocol: Services refer to them by these.
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
		// Hosts send to endpoints from their own addresses, and tunnels trust these.
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
	// Kubernetes defines the first address only; others belong to the same endpoint.
	for _, text := range e.Addresses[:min(1, len(e.Addresses))] {
		a, err := ipnet.ParseAddr(text)
		if err != nil || a.Is4() != (from.AddressType == discoveryv1.AddressTypeIPv4) {
			s.problem("BadEndpoint", "endpoint %q of service %s is no %s address: correct endpoint slice %s", text, s.Service, from.AddressType, s.Name)
			continue
		}
		if k := ipnet.Unusable(a); k != "" {
			s.problem("BadEndpoint", "endpoint %s of service %s is %s, which means another host on each host: give an address of a pod or of a host", a, s.Service, k)
			continue
		}
		h.Addr = a
		s.Endpoints = append(s.Endpoints, h)
	}
}

// state follows the API: an endpoint without ready is ready, and one without serving is serving.
func state(c discoveryv1.EndpointConditions) State {
	ready := c.Ready == nil || *c.Ready
	serving := c.Serving == nil || *c.Serving
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

// AddrPort is the endpoint's address and port.
func (e Endpoint) AddrPort() netip.AddrPort { return netip.AddrPortFrom(e.Addr, e.Port) }

// A Node has the fields that hints of endpoints refer to.
type Node struct{ Name, Zone string }

// Endpoints are all usable endpoints of one port, also draining ones, of both families, sorted by address: IPv4
// first.
type Endpoints []Endpoint

// Of returns the endpoints of the family of a.
func (es Endpoints) Of(a netip.Addr) Endpoints {
	six, _ := slices.BinarySearchFunc(es, 1, func(e Endpoint, f int) int { return ipnet.Family(e.Addr) - f })
	if a.Is4() {
		return slices.Clip(es[:six])
	}
	return es[six:]
}

// Cluster returns the endpoints for the traffic policy Cluster: the ready ones, or if there are none the draining
// ones.
func (es Endpoints) Cluster() Endpoints {
	if ready := es.in(Serving); len(ready) > 0 {
		return ready
	}
	return es.in(Draining)
}

// ClusterFrom returns the endpoints of Cluster for connections from node. If all endpoints have hints, and some for
// the node or else for its zone, it returns only these.
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

// Local returns the endpoints on a node for the traffic policy Local: the ready ones, or if there are none on the
// node the draining ones.
func (es Endpoints) Local(node string) Endpoints {
	return es.on(node).Cluster()
}

// on returns the endpoints on a node.
func (es Endpoints) on(node string) Endpoints {
	return es.filter(func(e *Endpoint) bool { return e.Node == node && node != "" })
}

// Hinted reports whether nodes prefer different endpoints.
func (es Endpoints) Hinted() bool {
	all := es.Cluster()
	_, nodes := all.meant(func(h *Host) []string { return h.Nodes }, "")
	_, zones := all.meant(func(h *Host) []string { return h.Zones }, "")
	return len(all) > 0 && all[0].State == Serving && (nodes || zones)
}

// meant returns the endpoints with a hint for who. It reports false unless every endpoint has hints of the kind:
// incomplete hints are not reliable.
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

// filter returns the endpoints to keep: es itself if it keeps all.
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
	// Served is the number of leading Service.Ports within the limits of Resolve.
	Served int
	// Listed are those of the served ports with endpoints in slices, ready or not.
	Listed []Port
	// Candidates is the number of endpoints of the slices for these ports, also unused ones.
	Candidates int
	// Beyond: ports have more endpoints of a family than MaxEndpoints. Most is then, of each port and family with policy
	// Local, an upper bound of those on one node.
	Beyond bool
	Most   [][2]int
	// Here, unless nil, are the endpoints of each port on the node of a host, also those beyond MaxEndpoints: see On.
	Here []Endpoints
	// Lost are claims held by another Service: see Claims.
	Lost Lost
	// Untold is the number of lost claims not among Problems.
	Untold int
	// Taken are ports of every node held by another Service: see Claims.
	Taken map[Claim]Key
	// Refused has the nodes where older Services leave less of MaxReplies than r has Candidates, and the number of
	// these. With external policy Local, r takes no connections from outside there: replies would have no route back.
	Refused map[string]int
	// OverQuota: older Services of the namespace leave less of MaxWeight than r's Weight.
	OverQuota bool
	// OverChosen and OverSpare: older Services of the namespace leave less of MaxChosen than r's Chosen, or of MaxSpare than
	// its Spare.
	OverChosen, OverSpare bool
}

// MaxEndpoints is the largest number of endpoints of a port and family. More would not fit into one group of Open
// vSwitch. With policy Local it is the limit of each node.
const MaxEndpoints = 1000

// Resolve joins a Service and its slices, in any order. Endpoints belong to the port of the same name and protocol.
// An endpoint in several slices, as while one replaces the other, counts once, in its best state.
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
			r.AddProblem("TooManyEndpoints", "service %s has no endpoints from port %d/%s on: its %d endpoint slices have more than %d in all: split the service", s.Key, p.Port, p.Protocol, len(slices), maxCandidates)
			break
		}
		es, more := collect(p, slices, n)
		if more[0] || more[1] {
			r.addMost(i, slices)
		}
		for f, of := range []string{"IPv4", "IPv6"} {
			if more[f] {
				r.AddProblem("TooManyEndpoints", "port %d/%s of service %s has more than %d %s endpoints, the first of which are used: split the service", p.Port, p.Protocol, s.Key, MaxEndpoints, of)
			}
		}
		cost := len(es) * (1 + len(s.ClusterIPs) + len(s.ExternalIPs) + len(s.Ingress))
		if cost > room {
			r.AddProblem("TooManyEndpoints", "service %s has no endpoints from port %d/%s on: with its %d at each of its addresses it would have more than %d in all: split the service", s.Key, p.Port, p.Protocol, len(es), maxBackends)
			break
		}
		r.Endpoints[i], r.Served, r.Candidates, room = es, i+1, r.Candidates+n, room-cost
		if n > 0 {
			r.Listed = append(r.Listed, p)
		}
	}
	return r
}

// maxBackends limits the endpoints of a Service, counted for each frontend. More would not fit into a message to the
// database, and users with write access to Services and slices could overload it.
const maxBackends = 200_000

// maxCandidates limits the endpoints read for all ports. Duplicates and unusable endpoints count, and each slice
// counts as at least one, even without the port. It bounds the time of Resolve.
const maxCandidates = 100_000

// ofPort returns the endpoints of slices for a port, with their port numbers.
func ofPort(p Port, all []Slice) iter.Seq2[[]Host, uint16] {
	return func(yield func([]Host, uint16) bool) {
		for _, s := range all {
			first, _ := slices.BinarySearchFunc(s.Ports, p, SlicePort.compare)
			for _, sp := range s.Ports[first:] {
				if sp.compare(p) != 0 {
					break
				}
				if !yield(s.Endpoints, sp.Port) {
					return
				}
			}
		}
	}
}

// candidates is the number of endpoints of slices for a port.
func candidates(p Port, all []Slice) (n int) {
	for hosts := range ofPort(p, all) {
		n += len(hosts)
	}
	return n
}

func sorted(all []Slice) []Slice {
	return slices.SortedFunc(slices.Values(all), func(a, b Slice) int { return cmp.Compare(a.Name, b.Name) })
}

// collect gathers the usable endpoints of a port; candidates is their number with duplicates. In each family it keeps
// the first MaxEndpoints, ready ones before draining ones. more reports the families with more.
func collect(p Port, all []Slice, candidates int) (out Endpoints, more [2]bool) {
	var few [2][Draining + 1]first
	if candidates <= MaxEndpoints {
		few[0][Serving].kept = make(Endpoints, 0, candidates)
	}
	for hosts, port := range ofPort(p, all) {
		for i := range hosts {
			if h := &hosts[i]; h.State != Unready {
				few[ipnet.Family(h.Addr)][h.State].add(Endpoint{h, port})
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

// A first keeps the endpoints with the lowest addresses, without sorting all. It keeps twice MaxEndpoints: for half
// of them, another slice may have a better state.
type first struct {
	kept Endpoints
	last *Endpoint // of the first 2 × MaxEndpoints; nil if there are fewer
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
