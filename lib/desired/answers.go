package desired

import (
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// answers has the gateways to answer ARP and neighbor solicitations for addresses outside.
type answers struct {
	gateways map[string]answer.Gateway // able to answer, by name
	chosen   map[netip.Addr]string     // the answering gateway, by address
}

func newAnswers() answers {
	return answers{gateways: map[string]answer.Gateway{}, chosen: map[netip.Addr]string{}}
}

// Answering returns the gateway to answer ARP and neighbor solicitations for an address outside, "" if there is none.
func (w *World) Answering(a netip.Addr) string { return w.answers.chosen[a] }

// AnsweredBy returns the addresses outside answered by a gateway, sorted.
func (w *World) AnsweredBy(gateway string) (out []netip.Addr) {
	for a, g := range w.answers.chosen {
		if g == gateway {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (w *World) answerRows(a netip.Addr) ([]nb.Row, error) {
	if g := w.answers.chosen[a]; g != "" {
		return []nb.Row{answer.Row(a, g)}, nil
	}
	return nil, nil
}

// lookAnswers chooses again for the addresses with other reservations, and for all after a change of gateways.
func (w *World) lookAnswers(c facts.Change) (touched []nb.Unit) {
	if c.Reservations {
		touched = w.answerAgain(c.ChangedReservations()...)
	}
	if c.Gateways {
		touched = append(touched, w.putAnsweringGateways()...)
	}
	return touched
}

// putAnsweringGateways records the gateways that are up, and returns the units of addresses with another gateway.
func (w *World) putAnsweringGateways() (touched []nb.Unit) {
	old, now, dead := w.answers.gateways, make(map[string]answer.Gateway, len(w.Facts().Cluster.Gateways)), w.Facts().Outages
	for name, g := range w.Facts().Cluster.Gateways {
		lans := slices.DeleteFunc(slices.Clone(g.IPs), func(p netip.Prefix) bool { return dead[name].Of(p.Addr()) })
		if g.Mode != topology.Local && len(lans) > 0 {
			now[name] = answer.Gateway{Name: name, Node: w.Facts().NodeOn(g.Chassis), LANs: lans}
		}
	}
	w.answers.gateways = now
	changed := facts.OtherKeys(old, now, answer.Gateway.Equal)
	if len(changed) == 0 {
		return nil
	}
	for a := range w.services.claims.Outside() {
		touched = append(touched, w.reconsider(a, changed)...)
	}
	return touched
}

// reconsider chooses the gateway of an address again, if one of the changed gateways may be a better choice. So the
// cost of a gateway does not grow with the others.
func (w *World) reconsider(a netip.Addr, changed map[string]bool) []nb.Unit {
	was := w.answers.chosen[a]
	if was == "" || changed[was] {
		return w.answerAgain(a)
	}
	serves := w.serving(a)
	for name := range changed {
		if g, ok := w.answers.gateways[name]; ok && g.On(a) && g.Compare(w.answers.gateways[was], a, serves) > 0 {
			return w.answerAgain(a)
		}
	}
	return nil
}

// answerAgain chooses the gateways of addresses, and returns the units of addresses with another gateway.
func (w *World) answerAgain(addrs ...netip.Addr) (touched []nb.Unit) {
	for _, a := range addrs {
		now := w.chooseAnswering(a)
		if now == w.answers.chosen[a] {
			continue
		}
		if w.answers.chosen[a] = now; now == "" {
			delete(w.answers.chosen, a)
		}
		touched = append(touched, answer.Unit(a))
	}
	return touched
}

// answerAnywhere does the same for all addresses outside. No gateway may have changed.
func (w *World) answerAnywhere() (touched []nb.Unit) {
	for a := range w.services.claims.Outside() {
		if was := w.answers.chosen[a]; was == "" || !w.answerable(a) {
			touched = append(touched, w.answerAgain(a)...)
		}
	}
	return touched
}

// answerForNodes chooses again for the addresses of a Service after a change of its endpoints on some nodes.
func (w *World) answerForNodes(k service.Key, nodes []string) (touched []nb.Unit) {
	s := w.services.all[k]
	if s == nil || !s.ExternalLocal {
		return nil
	}
	changed := map[string]bool{}
	for _, node := range nodes {
		for _, id := range w.Facts().ChassisOf[node] {
			for _, g := range w.Facts().Chassis[id].Gateways {
				changed[g] = true
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	for _, a := range s.Outside {
		touched = append(touched, w.reconsider(a, changed)...)
	}
	return touched
}

// chooseAnswering returns the best of the gateways with an address on their LAN, "" if there is none, or no Service
// may have the address.
func (w *World) chooseAnswering(a netip.Addr) string {
	if !w.answerable(a) {
		return ""
	}
	var best answer.Gateway
	serves := w.serving(a)
	for _, g := range w.answers.gateways {
		if g.On(a) && (best.Name == "" || g.Compare(best, a, serves) > 0) {
			best = g
		}
	}
	return best.Name
}

// answerable reports whether a Service has an address and no host does: hosts answer for their own.
func (w *World) answerable(a netip.Addr) bool {
	if w.Facts().Reserved(a) || !w.services.around.MayAnswer(a) {
		return false
	}
	return slices.ContainsFunc(w.services.claims.At(a), func(k service.Key) bool { return w.holds(k, a) })
}

// holds reports whether a Service has load balancers at an address outside.
func (w *World) holds(k service.Key, a netip.Addr) bool {
	s := w.services.all[k]
	return s != nil && s.known && !s.tooLarge && slices.ContainsFunc(s.Ports, func(p service.Port) bool {
		holder, _ := w.services.claims.Holder(service.Claim{Addr: a, Protocol: p.Protocol, Port: p.Port})
		return holder == k
	})
}

// serving returns a function to count the Services at an address that a gateway serves only because of an endpoint on
// its node: those with the external traffic policy Local.
func (w *World) serving(a netip.Addr) func(answer.Gateway) int {
	local := slices.DeleteFunc(w.services.claims.At(a), func(k service.Key) bool {
		s := w.services.all[k]
		return s == nil || !s.ExternalLocal || !w.holds(k, a)
	})
	return func(g answer.Gateway) (n int) {
		for _, k := range local {
			if w.hasEndpointOn(k, g.Node, a) {
				n++
			}
		}
		return n
	}
}

// hasEndpointOn reports whether a Service has a usable endpoint of an address family on a node.
func (w *World) hasEndpointOn(k service.Key, node string, family netip.Addr) bool {
	l := w.services.onNode[node][k]
	if l == nil {
		return false
	}
	for _, name := range l.slices {
		here := w.services.all[k].slices[name].On(node).Endpoints
		if slices.ContainsFunc(here, func(h service.Host) bool {
			return h.State != service.Unready && h.Addr.Is4() == family.Is4()
		}) {
			return true
		}
	}
	return false
}

func (w *World) answerUnits() []nb.Unit { return feature.UnitsOf(w.answers.chosen, answer.Unit) }
