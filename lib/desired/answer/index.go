package answer

import (
	"iter"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// An Index chooses the gateway for each address outside.
type Index struct {
	facts    *facts.Index
	services Services
	gateways map[string]Gateway    // able to answer, by name
	chosen   map[netip.Addr]string // the answering gateway, by address
}

// Services are the Services with addresses outside.
type Services interface {
	// Outside lists these addresses.
	Outside() iter.Seq[netip.Addr]
	// Held reports whether a Service has load balancers at an address, and no host or router outside has the address.
	Held(netip.Addr) bool
	// Local returns a function to count the Services at an address that have, as their external traffic policy Local
	// demands, an endpoint on a node.
	Local(netip.Addr) func(node string) int
}

// NewIndex returns an index without gateways.
func NewIndex(x *facts.Index, s Services) *Index {
	return &Index{x, s, map[string]Gateway{}, map[netip.Addr]string{}}
}

// Units implements feature.Feature.
func (x *Index) Units() []feature.Units {
	return []feature.Units{feature.Named(feature.Answers, Prefix, Of, x.rows, func() []nb.Unit { return feature.UnitsOf(x.chosen, Unit) })}
}

// Answering returns the gateway to answer ARP and neighbor solicitations for an address outside, "" if there is none.
func (x *Index) Answering(a netip.Addr) string { return x.chosen[a] }

// AnsweredBy returns the addresses outside answered by a gateway, sorted.
func (x *Index) AnsweredBy(gateway string) (out []netip.Addr) {
	for a, g := range x.chosen {
		if g == gateway {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (x *Index) rows(a netip.Addr) ([]nb.Row, error) {
	if g := x.chosen[a]; g != "" {
		return []nb.Row{Row(a, g)}, nil
	}
	return nil, nil
}

// FactsChanged chooses again for the addresses with other reservations, and for all after a change of gateways.
func (x *Index) FactsChanged(c facts.Change) (touched []nb.Unit) {
	if c.Reservations {
		touched = x.Again(c.ChangedReservations()...)
	}
	if c.Gateways {
		touched = append(touched, x.putGateways()...)
	}
	return touched
}

// putGateways records the gateways that are up, and returns the units of addresses with another gateway.
func (x *Index) putGateways() (touched []nb.Unit) {
	old, now, dead := x.gateways, make(map[string]Gateway, len(x.facts.Now().Cluster.Gateways)), x.facts.Now().Outages
	for name, g := range x.facts.Now().Cluster.Gateways {
		lans := slices.DeleteFunc(slices.Clone(g.IPs), func(p netip.Prefix) bool { return dead[name].Of(p.Addr()) })
		if g.Mode != topology.Local && !g.Closed && len(lans) > 0 {
			now[name] = Gateway{Name: name, Node: x.facts.Now().NodeOn(g.Chassis), LANs: lans, Hops: g.NextHops}
		}
	}
	x.gateways = now
	changed := facts.OtherKeys(old, now, Gateway.Equal)
	if len(changed) == 0 {
		return nil
	}
	for a := range x.services.Outside() {
		touched = append(touched, x.reconsider(a, changed)...)
	}
	return touched
}

// reconsider chooses the gateway of an address again, if one of the changed gateways may be a better choice. So the
// cost of a gateway does not grow with the others.
func (x *Index) reconsider(a netip.Addr, changed map[string]bool) []nb.Unit {
	was := x.chosen[a]
	if was == "" || changed[was] {
		return x.Again(a)
	}
	serves := x.serving(a)
	for name := range changed {
		if g, ok := x.gateways[name]; ok && g.MayAnswer(a) && g.Compare(x.gateways[was], a, serves) > 0 {
			return x.Again(a)
		}
	}
	return nil
}

// Again chooses the gateways of addresses, and returns the units of addresses with another gateway.
func (x *Index) Again(addrs ...netip.Addr) (touched []nb.Unit) {
	for _, a := range addrs {
		now := x.choose(a)
		if now == x.chosen[a] {
			continue
		}
		if x.chosen[a] = now; now == "" {
			delete(x.chosen, a)
		}
		touched = append(touched, Unit(a))
	}
	return touched
}

// Anywhere does the same for all addresses outside. No gateway may have changed.
func (x *Index) Anywhere() (touched []nb.Unit) {
	for a := range x.services.Outside() {
		if was := x.chosen[a]; was == "" || !x.answerable(a) {
			touched = append(touched, x.Again(a)...)
		}
	}
	return touched
}

// ForNodes chooses again for the addresses of a Service after a change of its endpoints on some nodes.
func (x *Index) ForNodes(addrs []netip.Addr, nodes []string) (touched []nb.Unit) {
	changed, f := map[string]bool{}, x.facts.Now()
	for _, node := range nodes {
		for _, id := range f.ChassisOf[node] {
			for _, g := range f.Chassis[id].Gateways {
				changed[g] = true
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	for _, a := range addrs {
		touched = append(touched, x.reconsider(a, changed)...)
	}
	return touched
}

// choose returns the best of the gateways that may answer for an address, "" if there is none, or no Service may have the
// address.
func (x *Index) choose(a netip.Addr) string {
	if !x.answerable(a) {
		return ""
	}
	var best Gateway
	serves := x.serving(a)
	for _, g := range x.gateways {
		if g.MayAnswer(a) && (best.Name == "" || g.Compare(best, a, serves) > 0) {
			best = g
		}
	}
	return best.Name
}

// answerable reports whether a gateway may answer for an address: hosts answer for their own.
func (x *Index) answerable(a netip.Addr) bool {
	return !x.facts.Now().Reserved(a) && x.services.Held(a)
}

// serving returns a function to count the Services at an address that a gateway serves only because of an endpoint on
// its node.
func (x *Index) serving(a netip.Addr) func(Gateway) int {
	local := x.services.Local(a)
	return func(g Gateway) int { return local(g.Node) }
}
