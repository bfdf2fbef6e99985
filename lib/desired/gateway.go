package desired

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Silent are the gateways whose hosts do not answer.
type Silent map[string]bool

// Chassis are the hosts that are registered in the Southbound database, by
// system-id. nil means that this is not known.
type Chassis map[string]bool

// Declared are the modes of gateways whose packets a host cannot forward, by system-id: the value of
// names.GatewayDownOption.
type Declared map[string]string

// gateways is what is known about gateways besides the topology.
type gateways struct {
	silent   Silent
	chassis  Chassis
	declared Declared
	dead     outages // that follow from it and the topology: see World.judgeGateways
}

// outages are the families in which nothing should lead to a gateway, by its name.
type outages map[string]families

type families struct{ v4, v6 bool }

// of reports whether an address is of one of the families.
func (f families) of(a netip.Addr) bool {
	if a.Unmap().Is4() {
		return f.v4
	}
	return f.v6
}

// judgeGateways finds the gateways that nothing should lead to: those whose hosts are gone,
// and those that declare themselves down. If those were all that lead outside in a family, the latter may still
// forward a part of its packets, and count as alive; if the hosts of all are gone, it
// is rather whoever says so that is wrong, and none is.
// It returns the units of those to which it makes a difference.
func (w *World) judgeGateways() (touched []nb.Unit) {
	was := w.gateways.dead
	w.gateways.dead = w.dead()
	for name := range otherKeys(was, w.gateways.dead, func(a, b families) bool { return a == b }) {
		touched = append(touched, topology.GatewayUnit(name))
	}
	return touched
}

// dead lists the gateways of judgeGateways.
func (w *World) dead() outages {
	gone, down := map[string]bool{}, map[string]bool{}
	for name, g := range w.cluster.Gateways {
		if w.gateways.silent[name] || w.gateways.chassis != nil && !w.gateways.chassis[g.Chassis] {
			gone[name], down[name] = true, true
		}
		if w.DeclaredDown(name) {
			down[name] = true
		}
	}
	if len(down) == 0 {
		return nil
	}
	v4, v6 := w.worst(netip.IPv4Unspecified(), down, gone), w.worst(netip.IPv6Unspecified(), down, gone)
	out := outages{}
	for name := range down {
		if f := (families{v4[name], v6[name]}); f.v4 || f.v6 {
			out[name] = f
		}
	}
	return out
}

// worst returns the first of several sets of gateways without which something still leads outside in a family. A
// family in which nothing ever does is like all together.
func (w *World) worst(family netip.Addr, sets ...map[string]bool) map[string]bool {
	used := w.cluster.Leads(family, func(string) bool { return true })
	for _, dead := range sets {
		if used && w.cluster.Leads(family, func(name string) bool { return !dead[name] }) || !used && len(dead) < len(w.cluster.Gateways) {
			return dead
		}
	}
	return nil
}

// DeclaredDown reports whether the host of a gateway says that it cannot forward the gateway's packets.
func (w *World) DeclaredDown(gateway string) bool {
	g, ok := w.cluster.Gateways[gateway]
	return ok && slices.Contains(names.SplitModes(w.gateways.declared[g.Chassis]), g.Mode)
}

// gatewayRows returns the rows of a gateway: without those that lead to it in a family in which
// it is dead.
func (w *World) gatewayRows(name string) []nb.Row {
	return append(w.cluster.GatewayRows(name), w.cluster.GatewayRoutesBut(name, w.gateways.dead[name].of)...)
}

// putGateways records what is known about gateways.
func (w *World) putGateways(g gateways) []nb.Unit {
	same := maps.Equal(w.gateways.silent, g.silent) && maps.Equal(w.gateways.declared, g.declared)
	if same && maps.Equal(w.gateways.chassis, g.chassis) && (w.gateways.chassis == nil) == (g.chassis == nil) {
		return nil
	}
	w.gateways = g
	return append(w.judgeGateways(), w.putAnsweringGateways()...)
}

// DeadGateways lists the gateways that nothing leads to at present, in one family at least.
func (w *World) DeadGateways() []string { return slices.Sorted(maps.Keys(w.gateways.dead)) }

// GatewayHosts are, by gateway, the addresses at which its host should answer.
func (w *World) GatewayHosts() map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	for name, g := range w.cluster.Gateways {
		var addrs []netip.Addr
		if g.Tunnel.IsValid() {
			addrs = append(addrs, g.Tunnel)
		}
		for _, a := range w.hosts[g.Node] {
			if !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
		hosts[name] = addrs
	}
	return hosts
}
