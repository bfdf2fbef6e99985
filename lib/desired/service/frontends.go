package service

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/ipnet"
)

// A Kind is the field of a Service with the frontend.
type Kind uint8

// Kinds of frontends.
const (
	ClusterIP      Kind = iota // spec.clusterIPs
	ExternalIP                 // spec.externalIPs
	LoadBalancerIP             // status.loadBalancer.ingress
	NodePort                   // spec.ports[].nodePort
)

// A Frontend is an address and a port number at which clients connect to one port of a Service.
type Frontend struct {
	*Resolved
	Kind Kind
	// Proxy is ipMode Proxy: a load balancer outside has the address, and nothing is programmed.
	Proxy bool
	// Number is the port number for clients.
	Number uint16
	// Index is the index in Ports.
	Index int
	// Addr is the zero Addr for a NodePort: all addresses of all nodes.
	Addr netip.Addr
	// Family is 0 for IPv4, 1 for IPv6.
	Family int
	// Refused is the reason why nothing is programmed, or "".
	Refused string
}

// A Network decides at which addresses outside Services may have frontends. Unknown parts are empty.
type Network struct {
	// Ranges are the subnets of cluster IPs.
	Ranges servicecidr.Ranges
	// Inside are the subnets of pods and of the join switch.
	Inside []netip.Prefix
	// Hops are the routers outside that gateways and hosts send to, sorted.
	Hops []netip.Addr
	// Routers are those of Hops for which no gateway answers, sorted.
	Routers []netip.Addr
	// Hosts are all addresses of hosts for NodePorts, sorted.
	Hosts []netip.Addr
}

// Frontends lists the frontends of r in a fixed order: by port, then cluster IPs, external IPs, addresses of load
// balancers, NodePorts. An address in several fields counts once, see Service.distinct. Frontends to which another
// Service has a better right are left out.
//
// This is the only list of frontends. OVN's load balancers (Rows), flows and rules of hosts (packages bridgeflows and
// nodeport) and service/show are made from it.
func (r *Resolved) Frontends(n Network) []Frontend {
	most := len(r.Ports) * (2*len(r.ClusterIPs) + len(r.ExternalIPs) + len(r.Ingress))
	out := make([]Frontend, 0, max(0, most-r.Lost.Number)) // there may be 100 000
	for i, p := range r.Ports {
		add := func(f Frontend, number uint16) {
			f.Resolved, f.Index, f.Number = r, i, number
			if !f.Proxy && !r.Has(f.Claim()) { // a Service has no claim to the address of a proxy
				return
			}
			if f.IsOutside() {
				f.Refused = r.refused(f, p, n)
			}
			out = append(out, f)
		}
		for _, a := range r.ClusterIPs {
			add(Frontend{Kind: ClusterIP, Addr: a, Family: ipnet.Family(a)}, p.Port)
		}
		for f := range r.outside() {
			add(f, p.Port)
		}
		if p.NodePort != 0 {
			for _, a := range r.ClusterIPs {
				add(Frontend{Kind: NodePort, Family: ipnet.Family(a)}, p.NodePort)
			}
		}
	}
	return out
}

// outside lists the addresses outside as frontends without a port.
func (r *Resolved) outside() iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		for _, a := range r.ExternalIPs {
			if !slices.Contains(r.ClusterIPs, a) && !yield(Frontend{Kind: ExternalIP, Addr: a, Family: ipnet.Family(a)}) {
				return
			}
		}
		for _, in := range r.Ingress {
			if !slices.Contains(r.ClusterIPs, in.Addr) && !yield(Frontend{Kind: LoadBalancerIP, Addr: in.Addr, Family: ipnet.Family(in.Addr), Proxy: in.Proxy}) {
				return
			}
		}
	}
}

// Claim is the claim needed for the frontend.
func (f Frontend) Claim() Claim { return Claim{f.Addr, f.Protocol(), f.Number} }

// Port is the Service's port.
func (f Frontend) Port() Port { return f.Ports[f.Index] }

// Protocol is the protocol of the Service's port.
func (f Frontend) Protocol() corev1.Protocol { return f.Ports[f.Index].Protocol }

// Backends are the endpoints of the port and the family, also terminating ones.
func (f Frontend) Backends() Endpoints { return f.Endpoints[f.Index].Of(ipnet.Families()[f.Family]) }

// Local are the endpoints on a node for the traffic policy Local: see Resolved.On.
func (f Frontend) Local(node string) Endpoints {
	return f.On(f.Index, node).Of(ipnet.Families()[f.Family]).Cluster()
}

// Reachable are the endpoints with connections at the frontend: Backends, and others on the node of Here.
func (f Frontend) Reachable() Endpoints {
	if f.Here == nil {
		return f.Backends()
	}
	return slices.Concat(f.Backends(), f.Here[f.Index].Of(ipnet.Families()[f.Family]))
}

// IsOutside reports whether the frontend is at an address outside the cluster.
func (f Frontend) IsOutside() bool { return f.Kind == ExternalIP || f.Kind == LoadBalancerIP }

// OfFamily reports whether an address is of the frontend's family.
func (f Frontend) OfFamily(a netip.Addr) bool { return a.Is4() == (f.Family == 0) }

// Programmed reports whether this project leads connections to the endpoints.
func (f Frontend) Programmed() bool { return !f.Proxy && f.Refused == "" }

// Guarded reports whether only SourceRanges reach the frontend: it is at an address of a load balancer, and they
// include no /0 of its family.
func (f Frontend) Guarded() bool {
	everybody := func(p netip.Prefix) bool { return p.Bits() == 0 && ipnet.Family(p.Addr()) == f.Family }
	return f.Kind == LoadBalancerIP && len(f.SourceRanges) > 0 && !slices.ContainsFunc(f.SourceRanges, everybody)
}

// Cluster is the Service's cluster IP of the family, with its port. If the Service has none, the frontend is Refused,
// and Cluster is the zero AddrPort.
func (f Frontend) Cluster() netip.AddrPort {
	i := slices.IndexFunc(f.ClusterIPs, func(a netip.Addr) bool { return ipnet.Family(a) == f.Family })
	if i < 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(f.ClusterIPs[i], f.Port().Port)
}

// refused says why the address of f cannot be one outside the cluster, or p not a port there, "" if both can. Otherwise users
// with write access to Services could receive packets to others (CVE-2020-8554).
func (r *Resolved) refused(f Frontend, p Port, n Network) (why string) {
	a := f.Addr
	if why := n.unusable(a, f.Kind == LoadBalancerIP); why != "" {
		return why
	}
	if !slices.ContainsFunc(r.ClusterIPs, func(c netip.Addr) bool { return ipnet.Family(c) == ipnet.Family(a) }) {
		return fmt.Sprintf("is one of IPv%d, of which the service has no cluster IP: set ipFamilyPolicy to PreferDualStack, or give another address", 4+2*ipnet.Family(a))
	}
	if !n.IsHosts(a) {
		return ""
	}
	if OfHost(p.Protocol, p.Port) {
		return fmt.Sprintf("is that of a host, which needs port %d/%s itself: choose another one", p.Port, p.Protocol)
	}
	if other, taken := r.OfNodes(p.Protocol, p.Port); taken {
		return fmt.Sprintf("is that of a host, where port %d/%s is that of service %s: choose another one", p.Port, p.Protocol, other)
	}
	return ""
}

// unusable says why no Service can have an address outside, "" if one can. ingress: it is in the status of a load balancer,
// where a controller writes and not the author of the Service. The next hop of a gateway follows from the claim of a node, and
// the credential of a kubelet suffices for that: it takes no such address.
func (n Network) unusable(a netip.Addr, ingress bool) (why string) {
	holds := func(p netip.Prefix) bool { return p.Contains(a) }
	if i := slices.IndexFunc(n.Inside, holds); i >= 0 {
		return fmt.Sprintf("lies in the cluster subnet %s: give one from outside the cluster", n.Inside[i])
	}
	if i := slices.IndexFunc(n.Ranges, holds); i >= 0 {
		return fmt.Sprintf("lies in the subnet of services %s: give one from outside the cluster", n.Ranges[i])
	}
	if _, found := slices.BinarySearchFunc(n.Hops, a, netip.Addr.Compare); found && !ingress {
		return "is that of the router outside to which gateways send: choose another one"
	}
	return ""
}

// Unanswered says why no gateway answers for the address of a programmed frontend, "" if one may. Packets that come nevertheless are
// served.
func (n Network) Unanswered(f Frontend) string {
	if _, found := slices.BinarySearchFunc(n.Routers, f.Addr, netip.Addr.Compare); !found || f.Kind != LoadBalancerIP || !f.Programmed() {
		return ""
	}
	return "is that of the router outside to which gateways send: no gateway answers for it; if the router is the load balancer, let its controller set ipMode Proxy, else take the address out of the pool"
}

// MayHave reports whether s may have an address outside, whatever its port.
func (s *Service) MayHave(a netip.Addr, n Network) bool {
	return n.unusable(a, slices.ContainsFunc(s.Ingress, func(in Ingress) bool { return in.Addr == a })) == ""
}

// IsHosts reports whether an address is a host's. Only the gateway on that host may have a frontend there: another
// one would answer ARP for the host.
func (n Network) IsHosts(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(n.Hosts, a, netip.Addr.Compare)
	return found
}
