package service

import (
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
)

// A layout is a Service in its network, with values shared by several of its rows.
type layout struct {
	*Resolved
	at Surroundings
	// all are all Frontends. frontends are the programmed ones, by port.
	all       []Frontend
	frontends [][]Frontend
	outside   []map[netip.Addr]bool // by port, if ExternalLocal: addresses outside among frontends
	answers   [][2]answers          // by port and family: see answering
	// byGateway: see Resolved.ByGateway.
	byGateway bool
	// differs says of each port, by family, whether nodes differ. index fills hints.
	differs [][2]bool
	hints   [][2]*hintIndex
	hinted  hinted
	places  []place // none if no node differs
}

func (r *Resolved) layout(at Surroundings) *layout {
	n := len(r.Ports)
	l := &layout{
		Resolved: r, at: at, byGateway: r.ByGateway(at.Subnets), all: r.Frontends(at.Network), frontends: make([][]Frontend, n), outside: make([]map[netip.Addr]bool, n),
		answers: make([][2]answers, n), differs: make([][2]bool, n), hints: make([][2]*hintIndex, n),
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
		for f, any := range ipnet.Families() {
			l.differs[i][f] = r.isNear(r.Endpoints[i].Of(any))
		}
	}
	if r.Near() {
		l.hinted = r.hinted(at.Nodes)
		l.places = l.hinted.places(at.Nodes)
	}
	return l
}

// programmed returns the programmed frontends: all itself if it has no others.
func programmed(all []Frontend) []Frontend {
	not := func(f Frontend) bool { return !f.Programmed() }
	if !slices.ContainsFunc(all, not) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), not)
}

// of returns the frontends of one protocol.
func (l *layout) of(protocol corev1.Protocol) iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
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
	all   Endpoints
	text  string
}

// answering returns the answers at a frontend. They are computed once for all frontends of the port and family.
func (l *layout) answering(f Frontend) *answers {
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

func setOf[K comparable](all []K) map[K]bool {
	if len(all) == 0 {
		return nil
	}
	out := make(map[K]bool, len(all))
	for _, k := range all {
		out[k] = true
	}
	return out
}
