// Package loadbalancer computes the rows of the Northbound database for the frontends of a Service: load balancers,
// template variables of hosts, ACLs of source ranges.
package loadbalancer

import (
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// Inputs are the inputs of the rows of Services, other than the Service.
type Inputs struct {
	service.Network
	// Subnets are the subnets of all pods.
	Subnets []netip.Prefix
	// Addresses is the largest number of IPv4 and of IPv6 addresses of a host: see AddressVariable.
	Addresses [2]int
	// Nodes are all nodes with a switch, by the name of the switch; sorted.
	Nodes    []service.Node
	Gateways map[string]Gateway // by name
	// Selection decides how OVN chooses endpoints.
	Selection Selection
}

// Balancers are the load balancers of a Service in its network, with values shared by several rows.
type Balancers struct {
	encoding
	at Inputs
	// all are all Frontends. frontends are the programmed ones, by port.
	all       []service.Frontend
	frontends [][]service.Frontend
	outside   []map[netip.Addr]bool // by port, if ExternalLocal: addresses outside among frontends
	answers   [][2]answers          // by port and family: see answering
	byGateway bool                  // see ByGateway
	near      nearness
}

// New returns the load balancers of r.
func New(r *service.Resolved, at Inputs) *Balancers {
	n := len(r.Ports)
	l := &Balancers{
		encoding: encoding{r}, at: at, byGateway: ByGateway(r, at.Subnets), all: r.Frontends(at.Network),
		frontends: make([][]service.Frontend, n), outside: make([]map[netip.Addr]bool, n), answers: make([][2]answers, n),
		near: newNearness(r, at.Nodes),
	}
	rest := l.all
	for i := range r.Ports {
		end := 0
		for end < len(rest) && rest[end].Index == i {
			end++
		}
		l.frontends[i], rest = programmed(rest[:end]), rest[end:]
		if r.ExternalLocal {
			l.outside[i] = map[netip.Addr]bool{}
			for _, f := range l.frontends[i] {
				l.outside[i][f.Addr] = f.IsOutside()
			}
		}
	}
	return l
}

// programmed returns the programmed frontends: all itself if it has no others.
func programmed(all []service.Frontend) []service.Frontend {
	not := func(f service.Frontend) bool { return !f.Programmed() }
	if !slices.ContainsFunc(all, not) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), not)
}

// of returns the frontends of one protocol.
func (l *Balancers) of(protocol corev1.Protocol) iter.Seq[service.Frontend] {
	return func(yield func(service.Frontend) bool) {
		for i, p := range l.Ports {
			if p.Protocol != protocol {
				continue
			}
			for _, f := range l.frontends[i] {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// answers are the endpoints of a port and family for the traffic policy Cluster, and their text as the value of a
// VIP.
type answers struct {
	known bool
	all   service.Endpoints
	text  string
}

// answering returns the answers at a frontend. They are computed once for all frontends of the port and family.
func (l *Balancers) answering(f service.Frontend) *answers {
	a := &l.answers[f.Index][f.Family]
	if !a.known {
		all := f.Backends().Cluster()
		*a = answers{true, all, l.backends(all)}
	}
	return a
}

// protocols are all protocols of Services.
func protocols() []corev1.Protocol {
	return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
}
