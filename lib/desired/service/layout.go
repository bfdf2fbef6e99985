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
	// differs says of each port, by family, whether nodes differ. What hints has of it is made by index.
	differs [][2]bool
	hints   [][2]*hintIndex
	hinted  hinted
	places  []place // none where no node differs
}

func (r *Resolved) layout(at Surroundings) *layout {
	l := &layout{Resolved: r, at: at, byGateway: r.ByGateway(at.Subnets), differs: make([][2]bool, len(r.Ports)), hints: make([][2]*hintIndex, len(r.Ports))}
	for i, p := range r.Ports {
		outer := r.outer(p, at)
		l.outers, l.asSets = append(l.outers, outer), append(l.asSets, setOf(outer))
		for f, any := range families() {
			l.differs[i][f] = r.isNear(r.Endpoints[i].Of(any))
		}
	}
	if r.Near() {
		l.hinted = r.hinted(at.Nodes)
		l.places = l.hinted.places(at.Nodes)
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
