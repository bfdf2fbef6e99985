package service

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// A layout is a Service in its network, with what several of its rows need.
type layout struct {
	*Resolved
	at     Surroundings
	outers [][]netip.Addr        // by port: see outer
	asSets []map[netip.Addr]bool // the same as sets
	// byGateway: see Resolved.ByGateway.
	byGateway bool
	// hints are those of each port, by family: nil where nodes do not differ.
	hints  [][2]*hintIndex
	places []place // none where no node differs
}

func (r *Resolved) layout(at Surroundings) *layout {
	l := &layout{Resolved: r, at: at, byGateway: r.ByGateway(at.Subnets), hints: make([][2]*hintIndex, len(r.Ports))}
	for i, p := range r.Ports {
		outer := r.outer(p, at)
		l.outers, l.asSets = append(l.outers, outer), append(l.asSets, setOf(outer))
		for f, any := range families() {
			if es := r.Endpoints[i].Of(any); r.isNear(es) {
				x := newHintIndex(es)
				l.hints[i][f] = &x
			}
		}
	}
	if r.Near() {
		l.places = r.places(at.Nodes)
	}
	return l
}

// hasOuter reports whether an address is one outside at which r has port number i.
func (l *layout) hasOuter(i int, a netip.Addr) bool { return l.asSets[i][a] }

// nodePort reports whether r has the NodePort of a port.
func (r *Resolved) nodePort(p Port) bool {
	return p.NodePort != 0 && r.Has(Claim{Protocol: p.Protocol, Port: p.NodePort})
}

// protocols are all that Services have.
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
