// Package service defines the meaning of a Kubernetes Service: its frontends, and the endpoints of each.
//
// Resolve joins a Service and its EndpointSlices to one value. Package loadbalancer makes rows of it, and package
// nodeport the flows and rules of a node.
package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// A Key names a Service.
type Key struct{ Namespace, Name string }

// String is the key as Kubernetes writes it: "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Unit is the unit of the Service's rows.
func (k Key) Unit() nb.Unit { return nb.Unit(UnitPrefix + k.String()) }

// UnitPrefix starts the units of Services.
const UnitPrefix = "service/"

// KeyOf is the inverse of Key.Unit. It reports false for units of other kinds.
func KeyOf(u nb.Unit) (Key, bool) {
	rest, ok := strings.CutPrefix(string(u), UnitPrefix)
	ns, name, ok2 := strings.Cut(rest, "/")
	return Key{ns, name}, ok && ok2
}

// A Problem is an error in the input: a reason of one word in CamelCase for an Event, and a message of one line with
// the wrong value and the remedy.
type Problem struct{ Reason, Message string }

// A Service has the needed fields of a Kubernetes Service. Invalid addresses and ports are left out, and named in
// Problems.
type Service struct {
	Key
	UID     string
	Created int64 // creationTimestamp, in seconds since 1970
	Type    corev1.ServiceType
	// Ours is false for Services without load balancing, or with that of another proxy: headless ones, ExternalName,
	// and those with the label of another proxy.
	Ours       bool
	ClusterIPs []netip.Addr
	Ports      []Port
	// ExternalIPs are the addresses of spec.externalIPs, each once and without those of Ingress: see distinct. The network
	// outside has to route them to the cluster.
	ExternalIPs []netip.Addr
	// Ingress are the addresses of a load balancer, from the status, each once.
	Ingress []Ingress
	// Outside are the balanced addresses outside the cluster, each once: see external.
	Outside []netip.Addr
	// SourceRanges, unless empty, are the only sources of connections to Ingress.
	SourceRanges []netip.Prefix
	// InternalLocal and ExternalLocal are the traffic policies Local: only endpoints on the node where the connection
	// enters. ClusterIPs are internal, all other frontends external.
	InternalLocal, ExternalLocal bool
	// Affinity is the number of seconds for which a client keeps its endpoint; 0 is no affinity.
	Affinity int
	// HealthCheckNodePort is the port to ask a node for the number of its local endpoints; 0 is none.
	HealthCheckNodePort uint16
	// PublishNotReady is for DNS: endpoint slices count such endpoints as ready.
	PublishNotReady bool
	Problems        []Problem
}

// A Port is one port of a Service.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Port     uint16
	NodePort uint16 // 0: none
}

// An Ingress is an address of a load balancer.
type Ingress struct {
	Addr netip.Addr
	// Proxy is ipMode Proxy: the load balancer is a hop of its own, connects to NodePorts or endpoints, and must be
	// reached even from pods.
	Proxy bool
}

// New returns the needed fields of s.
func New(s *corev1.Service) Service {
	out := Service{
		Key: Key{s.Namespace, s.Name}, UID: string(s.UID), Created: s.CreationTimestamp.Unix(), Type: s.Spec.Type,
		Ours:            ours(s),
		PublishNotReady: s.Spec.PublishNotReadyAddresses,
		InternalLocal:   s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
	}
	if !out.Ours {
		return out
	}
	out.ExternalLocal = s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && external(s)
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	out.ClusterIPs = out.addrs("clusterIP", ips)
	out.ExternalIPs = out.addrs("externalIP", s.Spec.ExternalIPs)
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Affinity = affinity(s)
	}
	out.Ports = out.ports(s)
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		out.loadBalancer(s)
	}
	out.limit()
	out.distinct()
	out.Outside = out.external()
	return out
}

// ExternalIPs is whether a cluster serves spec.externalIPs of Services. Kubernetes deprecates the field, because whoever may
// write Services can take packets to any address by it (CVE-2020-8554).
type ExternalIPs bool

// New is the function New for such a cluster. External IPs that are not served are left out, and named in Problems.
func (served ExternalIPs) New(s *corev1.Service) Service {
	if bool(served) || len(s.Spec.ExternalIPs) == 0 {
		return New(s)
	}
	without := *s
	without.Spec.ExternalIPs = nil
	out := New(&without)
	if out.Ours {
		out.AddProblem("ExternalIPsOff", "service %s has %d addresses in spec.externalIPs, the first is %q: this cluster serves none (setting external-ips); remove them, and let a load balancer give the service an address",
			out.Key, len(s.Spec.ExternalIPs), s.Spec.ExternalIPs[0])
	}
	return out
}

// Limits of one Service. Otherwise users with write access to Services could overload the databases and every node.
const (
	maxOuter     = 1000   // addresses outside
	maxRanges    = 1000   // source ranges
	maxFrontends = 50_000 // ports at addresses
	maxGuards    = 50_000 // source ranges of ports at addresses: elements, rules or flows of every node
)

// limit removes the excess: first the addresses outside, then all ports.
func (s *Service) limit() {
	outer := len(s.ExternalIPs) + len(s.Ingress)
	inner := len(s.Ports) * (len(s.ClusterIPs) + 1)
	ways := inner + len(s.Ports)*outer
	guards := len(s.Ports) * len(s.Ingress) * len(s.SourceRanges)
	why := ""
	switch {
	case outer > maxOuter:
		why = fmt.Sprintf("%d are more than %d", outer, maxOuter)
	case len(s.SourceRanges) > maxRanges:
		why = fmt.Sprintf("%d loadBalancerSourceRanges are more than %d", len(s.SourceRanges), maxRanges)
	case outer > 0 && ways > maxFrontends:
		why = fmt.Sprintf("with all ports they would be %d frontends, more than %d", ways, maxFrontends)
	case guards > maxGuards:
		why = fmt.Sprintf("%d loadBalancerSourceRanges for each of %d ports at %d addresses are %d, more than %d", len(s.SourceRanges), len(s.Ports), len(s.Ingress), guards, maxGuards)
	}
	if why != "" {
		s.RefuseOutside(why + ": split the service")
	}
	if inner > maxFrontends {
		s.AddProblem("TooManyWays", "service %s has none of its %d ports: at all its addresses they would be more than %d frontends: split the service", s.Key, len(s.Ports), maxFrontends)
		s.Ports = nil
	}
}

// Outer is the number of frontends at addresses outside, those with source ranges once for each range of their family.
func (s *Service) Outer() int {
	var ranges [2]int // by family
	for _, r := range s.SourceRanges {
		ranges[ipnet.Family(r.Addr())]++
	}
	at := len(s.ExternalIPs)
	for _, in := range s.Ingress {
		if !in.Proxy {
			at += max(1, ranges[ipnet.Family(in.Addr)])
		}
	}
	return len(s.Ports) * at
}

// RefuseOutside removes the addresses outside, as a Problem.
func (s *Service) RefuseOutside(why string) {
	s.AddProblem("TooManyWays", "service %s has none of its external and load balancer addresses: %s", s.Key, why)
	s.ExternalIPs, s.Ingress, s.SourceRanges, s.Outside = nil, nil, nil, nil
}

func ours(s *corev1.Service) bool {
	_, proxied := s.Labels[names.LabelServiceProxy]
	_, headless := s.Labels[names.LabelHeadless]
	return !proxied && !headless && s.Spec.Type != corev1.ServiceTypeExternalName &&
		s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// external reports whether s can be reached from outside.
func external(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Spec.ExternalIPs) > 0
}

// affinity is the timeout of session affinity, by default three hours as in Kubernetes.
func affinity(s *corev1.Service) int {
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return int(*c.ClientIP.TimeoutSeconds)
	}
	return int(corev1.DefaultClientIPServiceAffinitySeconds)
}

// HasNodePorts reports whether a port has a NodePort.
func (s *Service) HasNodePorts() bool {
	return slices.ContainsFunc(s.Ports, func(p Port) bool { return p.NodePort != 0 })
}

// ByNode reports whether a frontend of s has other endpoints on each node.
func (s *Service) ByNode() bool { return s.Ours && (s.InternalLocal || s.ExternalLocal) }

// AddProblem adds an error in the input.
func (s *Service) AddProblem(reason, format string, args ...any) {
	s.Problems = append(s.Problems, Problem{reason, fmt.Sprintf(format, args...)})
}

// addrs parses addresses of a field. Unusable ones are left out and named in Problems.
func (s *Service) addrs(field string, texts []string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		a, err := ipnet.ParseAddr(t)
		if err != nil {
			s.AddProblem("BadServiceAddress", "%s %q of service %s is no IP address: give one such as 192.0.2.1 or 2001:db8::1", field, t, s.Key)
			continue
		}
		if why := ipnet.Unusable(a); why != "" {
			s.AddProblem("BadServiceAddress", "%s %s of service %s is %s: give a unicast address that can be routed", field, a, s.Key, why)
			continue
		}
		if len(texts) > maxOuter || !slices.Contains(out, a) { // limit removes all of a longer list
			out = append(out, a)
		}
	}
	return out
}

func (s *Service) ports(from *corev1.Service) []Port {
	var out []Port
	for _, p := range from.Spec.Ports {
		port := Port{Name: p.Name, Protocol: p.Protocol}
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		var ok bool
		if port.Port, ok = portNumber(p.Port); !ok || port.Port == 0 || !known(port.Protocol) {
			s.AddProblem("BadServicePort", "port %d/%s of service %s is no port: give 1 to 65535 of TCP, UDP or SCTP", p.Port, p.Protocol, s.Key)
			continue
		}
		if port.NodePort, ok = portNumber(p.NodePort); !ok {
			s.AddProblem("BadServicePort", "nodePort %d of service %s is no port: give 1 to 65535", p.NodePort, s.Key)
			port.NodePort = 0
		}
		if OfHost(port.Protocol, port.NodePort) {
			s.AddProblem("BadServicePort", "nodePort %d/%s of service %s is a port that every node needs itself: choose another one", p.NodePort, port.Protocol, s.Key)
			port.NodePort = 0
		}
		out = append(out, port)
	}
	return out
}

func portNumber(p int32) (uint16, bool) { return uint16(max(0, min(p, 65535))), p >= 0 && p <= 65535 }

func known(p corev1.Protocol) bool {
	return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP || p == corev1.ProtocolSCTP
}

// loadBalancer reads the fields of Services of type LoadBalancer.
func (s *Service) loadBalancer(from *corev1.Service) {
	for _, in := range from.Status.LoadBalancer.Ingress {
		if in.IP == "" {
			continue // a hostname: DNS leads to the provider's load balancer
		}
		for _, a := range s.addrs("load balancer address", []string{in.IP}) {
			s.Ingress = append(s.Ingress, Ingress{a, in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy})
		}
	}
	if s.ExternalLocal {
		s.HealthCheckNodePort, _ = portNumber(from.Spec.HealthCheckNodePort)
	}
	for _, r := range from.Spec.LoadBalancerSourceRanges {
		p, err := ipnet.ParsePrefix(strings.TrimSpace(r))
		if err != nil {
			s.AddProblem("BadSourceRange", "loadBalancerSourceRanges %q of service %s is no subnet: give one such as 192.0.2.0/24; nobody is let in by it", r, s.Key)
			// An unusable range must not open the frontend to all sources.
			p = netip.PrefixFrom(netip.IPv4Unspecified(), 32)
		}
		s.SourceRanges = append(s.SourceRanges, p)
	}
}
