package desired

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Silent are the gateways on unhealthy hosts.
type Silent map[string]bool

// Chassis are the hosts registered in the Southbound database, by system-id. nil means unknown.
type Chassis map[string]bool

// Declared are the modes of gateways that a host declares down, by system-id: the value of names.GatewayDownOption.
type Declared map[string]string

// gateways is the state of gateways besides the topology.
type gateways struct {
	silent   Silent
	chassis  Chassis
	declared Declared
	dead     outages // computed from it and the topology: see World.judgeGateways
}

// outages are the families without routes to a gateway, by its name.
type outages map[string]families

type families struct{ v4, v6 bool }

// of reports whether an address is of one of the families.
func (f families) of(a netip.Addr) bool {
	if a.Unmap().Is4() {
		return f.v4
	}
	return f.v6
}

// judgeGateways decides which gateways are down: those on unhealthy or unregistered hosts, and those declared down by
// their hosts. If this leaves no route outside in a family, gateways declared down count as up, because they may
// still forward a part of its packets. If all hosts are unhealthy or unregistered, the reports are more likely wrong,
// and no gateway is down. It returns the units of the gateways with another state.
func (w *World) judgeGateways() (touched []nb.Unit) {
	was := w.gateways.dead
	w.gateways.dead = w.dead()
	for name := range otherKeys(was, w.gateways.dead, func(a, b families) bool { return a == b }) {
		touched = append(touched, topology.GatewayUnit(name))
	}
	return touched
}

// dead returns the outages for judgeGateways.
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

// worst returns the first of several sets of gateways without which routes outside remain in a family. If a family
// never has such routes, it returns the first set that is not all gateways.
func (w *World) worst(family netip.Addr, sets ...map[string]bool) map[string]bool {
	used := w.cluster.Leads(family, func(string) bool { return true })
	for _, dead := range sets {
		if used && w.cluster.Leads(family, func(name string) bool { return !dead[name] }) || !used && len(dead) < len(w.cluster.Gateways) {
			return dead
		}
	}
	return nil
}

// DeclaredDown reports whether the host of a gateway declares it down, because it cannot forward the gateway's
// packets.
func (w *World) DeclaredDown(gateway string) bool {
	g, ok := w.cluster.Gateways[gateway]
	return ok && slices.Contains(names.SplitModes(w.gateways.declared[g.Chassis]), g.Mode)
}

// gatewayRows returns the rows of a gateway, without routes to it in families in which it is down.
func (w *World) gatewayRows(name string) ([]nb.Row, error) {
	return append(w.cluster.GatewayRows(name), w.cluster.GatewayRoutesBut(name, w.gateways.dead[name].of)...), nil
}

func (w *World) gatewayUnits() []nb.Unit { return unitsOf(w.cluster.Gateways, topology.GatewayUnit) }

func (w *World) putSilent(s Silent) []nb.Unit {
	g := w.gateways
	g.silent = s
	return w.putGateways(g)
}

func (w *World) putChassis(c Chassis) []nb.Unit {
	g := w.gateways
	g.chassis = c
	return w.putGateways(g)
}

func (w *World) putDeclared(d Declared) []nb.Unit {
	g := w.gateways
	g.declared = d
	return w.putGateways(g)
}

// putGateways records the state of gateways.
func (w *World) putGateways(g gateways) []nb.Unit {
	same := maps.Equal(w.gateways.silent, g.silent) && maps.Equal(w.gateways.declared, g.declared)
	if same && maps.Equal(w.gateways.chassis, g.chassis) && (w.gateways.chassis == nil) == (g.chassis == nil) {
		return nil
	}
	w.gateways = g
	return append(w.judgeGateways(), w.putAnsweringGateways()...)
}

// DeadGateways lists the gateways that are down in at least one family.
func (w *World) DeadGateways() []string { return slices.Sorted(maps.Keys(w.gateways.dead)) }

// GatewayHosts returns the addresses to probe on the host of each gateway.
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
