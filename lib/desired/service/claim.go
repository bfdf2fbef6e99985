package service

import (
	"cmp"
	"fmt"
	"iter"
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

// AtNodes is the claim to the same port of every node.
func (c Claim) AtNodes() Claim { return Claim{Protocol: c.Protocol, Port: c.Port} }

// A Right is what a claim rests on. Of two claims to one frontend, the one with the smaller Right is the better.
type Right uint8

// Rights.
const (
	Allocated Right = iota // a cluster IP: Kubernetes gives each to one Service
	Assigned               // an address in the status: only controllers of load balancers write it
	Requested              // an external IP or a NodePort: whoever writes the Service chooses it
	rights
)

// Claims lists the claims of s by their Right.
func (s Service) Claims() (all [rights][]Claim) {
	assigned := make(map[netip.Addr]bool, len(s.Ingress))
	for _, in := range s.Ingress {
		assigned[in.Addr] = !in.Proxy
	}
	all[Allocated], all[Requested] = make([]Claim, 0, len(s.Ports)*len(s.ClusterIPs)), make([]Claim, 0, len(s.Ports)*(len(s.Outside)+1))
	for _, p := range s.Ports {
		for _, a := range s.ClusterIPs {
			all[Allocated] = append(all[Allocated], Claim{a, p.Protocol, p.Port})
		}
		for c := range p.claims(s.Outside) {
			right := Requested
			if assigned[c.Addr] {
				right = Assigned
			}
			all[right] = append(all[right], c)
		}
	}
	return all
}

// APIServer is the Service of the API server. Its endpoints are addresses of hosts; pods and nodes connect to them.
func APIServer() Key { return Key{"default", "kubernetes"} }

// Older orders Services by age, and with equal age by name.
func (s Service) Older(o Service) int {
	return cmp.Or(cmp.Compare(s.Created, o.Created), strings.Compare(s.String(), o.String()))
}

// external lists the balanced addresses outside the cluster. A load balancer in mode Proxy balances its own.
func (s *Service) external() []netip.Addr {
	out := slices.Clone(s.ExternalIPs)
	for _, in := range s.Ingress {
		if !in.Proxy {
			out = append(out, in.Addr)
		}
	}
	return out
}

// distinct removes repeated addresses outside, so that each counts once. Addresses of the load balancer go before external
// IPs, because SourceRanges protect only these. In mode Proxy they go after them: nothing is programmed there.
func (s *Service) distinct() {
	first := make(map[netip.Addr]bool, len(s.Ingress)) // of each address of the load balancer: the mode
	s.Ingress = slices.DeleteFunc(s.Ingress, func(in Ingress) bool {
		_, repeated := first[in.Addr]
		if !repeated {
			first[in.Addr] = in.Proxy
		}
		return repeated
	})
	has := make(map[netip.Addr]bool, len(s.ExternalIPs))
	s.ExternalIPs = slices.DeleteFunc(s.ExternalIPs, func(a netip.Addr) bool {
		proxy, balanced := first[a]
		if has[a] || balanced && !proxy {
			return true
		}
		has[a] = true
		return false
	})
	s.Ingress = slices.DeleteFunc(s.Ingress, func(in Ingress) bool { return has[in.Addr] })
}

// Lost are claims of a Service held by others. The zero value is none.
type Lost struct {
	Number int
	// Holder returns the holder of a claim of the Service: the zero Key if that is not to be named. It reports false
	// if the claim is not lost.
	Holder func(Claim) (Key, bool)
	// Assigned reports whether the holder has the address from its load balancer, which comes before age. nil: it never has.
	Assigned func(Claim) bool
}

// LostIn returns lost claims by their holders.
func LostIn(holders map[Claim]Key) Lost {
	return Lost{Number: len(holders), Holder: func(c Claim) (Key, bool) {
		k, ok := holders[c]
		return k, ok
	}}
}

// maxConflicts limits the lost claims with a Problem of their own.
const maxConflicts = 10

// LoseTo records lost claims of r as Problems.
func (r *Resolved) LoseTo(lost Lost) {
	if r.Lost = lost; lost.Number == 0 {
		return
	}
	told := 0
	for _, p := range r.Ports {
		for c := range p.claims(r.ClusterIPs, r.Outside) {
			other, ok := lost.Holder(c)
			if !ok {
				continue
			}
			if told++; told > maxConflicts {
				r.Untold = lost.Number - maxConflicts
				return
			}
			who := "another service"
			if other != (Key{}) {
				if who = "service " + other.String(); lost.Assigned != nil && lost.Assigned(c) {
					who = "the load balancer of " + who + ", whose address it is"
				}
			}
			r.AddProblem("PortConflict", "%s of service %s is in use by %s: choose another one", c, r.Key, who)
		}
	}
}

// claims lists the claims for p at some addresses, and for its NodePort.
func (p Port) claims(lists ...[]netip.Addr) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		for _, addrs := range lists {
			for _, a := range addrs {
				if !yield(Claim{a, p.Protocol, p.Port}) {
					return
				}
			}
		}
		if p.NodePort != 0 {
			yield(Claim{netip.Addr{}, p.Protocol, p.NodePort})
		}
	}
}

// Has reports whether r has the right to a frontend with a claim.
func (r *Resolved) Has(c Claim) bool {
	if r.Lost.Number == 0 {
		return true
	}
	_, lost := r.Lost.Holder(c)
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
