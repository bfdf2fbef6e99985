package facts

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/names"
)

// Silent are the gateways on unhealthy hosts.
type Silent map[string]bool

// Registered are the hosts in the Southbound database, by system-id. nil means unknown, and so does false for a host.
type Registered map[string]bool

// lacks reports whether a host is known not to be registered.
func (r Registered) lacks(chassis string) bool {
	_, has := r[chassis]
	return r != nil && !has
}

// Declared are the modes of gateways that a host declares down, by system-id: the value of names.GatewayDownOption.
type Declared map[string]string

// Outages are the gateways that are down, by name.
type Outages map[string]Outage

// An Outage has the families without routes to a gateway.
type Outage struct {
	Families
	// Declared by the host: then pods there leave by other gateways, too. Without it they keep their own: their host has ended,
	// is cut off from other gateways as well, or has no ovn-controller, which would end their sessions at its return.
	Declared bool
}

// Cuts reports whether pods' packets of the family of an address must not go to the gateway: pods of its own host or others.
func (o Outage) Cuts(family netip.Addr, own bool) bool { return o.Of(family) && (o.Declared || !own) }

// Families are address families.
type Families struct{ v4, v6 bool }

// Of reports whether an address is of one of the families.
func (f Families) Of(a netip.Addr) bool {
	if a.Unmap().Is4() {
		return f.v4
	}
	return f.v6
}

// outages decides which gateways are down: those on unhealthy or unregistered hosts, and those declared down by their
// hosts. If this leaves no route outside in a family, gateways declared down count as up, because they may still forward
// a part of its packets. If all hosts are unhealthy or unregistered, the reports are more likely wrong, and no gateway is
// down.
func (f *Facts) outages() Outages {
	gone, down := map[string]bool{}, map[string]bool{}
	for name, g := range f.Cluster.Gateways {
		if f.Silent[name] || f.Registered.lacks(g.Chassis) {
			gone[name], down[name] = true, true
		}
		if f.DeclaredDown(name) {
			down[name] = true
		}
	}
	if len(down) == 0 {
		return nil
	}
	v4, v6 := f.worst(netip.IPv4Unspecified(), down, gone), f.worst(netip.IPv6Unspecified(), down, gone)
	out := Outages{}
	for name := range down {
		if families := (Families{v4[name], v6[name]}); families.v4 || families.v6 {
			out[name] = Outage{families, f.DeclaredDown(name)}
		}
	}
	return out
}

// worst returns the first of several sets of gateways without which routes outside remain in a family. If a family
// never has such routes, it returns the first set that is not all gateways.
func (f *Facts) worst(family netip.Addr, sets ...map[string]bool) map[string]bool {
	used := f.Cluster.Gateways.Lead(family, func(string) bool { return true })
	for _, dead := range sets {
		if used && f.Cluster.Gateways.Lead(family, func(name string) bool { return !dead[name] }) || !used && len(dead) < len(f.Cluster.Gateways) {
			return dead
		}
	}
	return nil
}

// DeclaredDown reports whether the host of a gateway declares it down, because it cannot forward the gateway's
// packets.
func (f *Facts) DeclaredDown(gateway string) bool {
	g, ok := f.Cluster.Gateways[gateway]
	return ok && slices.Contains(names.SplitModes(f.Declared[g.Chassis]), g.Mode)
}

// DeadGateways lists the gateways that are down in at least one family.
func (f *Facts) DeadGateways() []string { return slices.Sorted(maps.Keys(f.Outages)) }

// A GatewayHost has the addresses of a gateway's host, for probes.
type GatewayHost struct {
	Tunnels []netip.Addr // those in the Southbound database, or else the recorded one
	Others  []netip.Addr // of its Node: one of them may have moved to another host, or be in another network
}

// GatewayHosts returns the host of each gateway.
func (f *Facts) GatewayHosts() map[string]GatewayHost {
	hosts := map[string]GatewayHost{}
	for name, g := range f.Cluster.Gateways {
		h := GatewayHost{Tunnels: f.reserved.tunnels[g.Chassis]}
		if len(h.Tunnels) == 0 && g.Tunnel.IsValid() {
			h.Tunnels = []netip.Addr{g.Tunnel}
		}
		for _, a := range f.Addresses[g.NodeIn(f.Cluster)] {
			if !slices.Contains(h.Tunnels, a) {
				h.Others = append(h.Others, a)
			}
		}
		hosts[name] = h
	}
	return hosts
}
