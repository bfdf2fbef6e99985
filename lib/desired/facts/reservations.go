package facts

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// Protected are addresses of the API server and the databases, and their descriptions. The credential of a kubelet
// must not suffice to receive packets of pods to them.
type Protected map[netip.Addr]string

// Tunnels are the tunnel addresses of the hosts in the Southbound database, by system-id. nil means unknown.
type Tunnels map[string][]netip.Addr

// reservations are the addresses that a Node does not get just by reporting them.
type reservations struct {
	protected Protected
	tunnels   Tunnels
	apiServer []netip.Addr // sorted
	of        map[netip.Addr]reservation
}

// A reservation describes an address, and the node allowed to have it.
type reservation struct {
	is    string
	node  string // its switch, or ""
	prove bool   // a node may have it with proof, see proven
	hop   bool   // it is a router's outside, or that of a node with a better right, see mayRoute
	known bool   // the hop is more than the claim of one node, see Router
}

// reserve computes the reservations again, and judges the addresses of the hosts affected: of all, if the cluster has other subnets.
func (x *Index) reserve(f *Facts) Change {
	f.reserved.of = f.reservations()
	affected := map[string]bool{}
	affect := func(a netip.Addr) {
		for _, h := range x.reports.of[a] {
			affected[names.NodeSwitch(h.name)] = true
		}
	}
	for a := range OtherKeys(x.now.reserved.of, f.reserved.of, Same) {
		affect(a)
	}
	for a, r := range f.reserved.of { // their proofs, or the gateways that send there, may have changed
		if r.prove || r.hop {
			affect(a)
		}
	}
	if !slices.Equal(x.now.Inside(), f.Inside()) {
		for a := range x.reports.of {
			affect(a)
		}
	}
	c := x.decideAddresses(f, slices.Sorted(maps.Keys(affected)))
	c.Reservations = true
	if now := f.ranges(); !slices.Equal(f.Ranges, now) {
		f.Ranges, c.Surroundings = now, true
	}
	return c
}

// reservations are the addresses with a reservation. Those of gateways follow from claims of nodes, and others have precedence: the
// credential of a kubelet suffices for a claim.
func (f *Facts) reservations() map[netip.Addr]reservation {
	now := map[netip.Addr]reservation{}
	f.reserveGateways(now)
	for id, addrs := range f.reserved.tunnels {
		if node := f.NodeOn(id); node != "" {
			for _, a := range addrs {
				now[a] = reservation{is: "the tunnel address of node " + node, node: node}
			}
		}
	}
	for _, a := range f.reserved.apiServer {
		now[a] = reservation{is: "an address of the API server", prove: true}
	}
	for a, is := range f.reserved.protected {
		now[a] = reservation{is: is, prove: true}
	}
	return now
}

// reserveGateways adds the addresses of gateways, and their next hops that are no gateways.
func (f *Facts) reserveGateways(now map[netip.Addr]reservation) {
	gateways := slices.DeleteFunc(f.Cluster.Gateways.Names(), func(name string) bool { return f.Cluster.Gateways[name].Mode == topology.Local })
	senders := map[netip.Addr]string{} // the first node that sends there
	for _, name := range gateways {
		g := f.Cluster.Gateways[name]
		sw := f.NodeOn(g.Chassis)
		for _, hop := range g.Reserves() {
			first, more := senders[hop]
			if !more {
				senders[hop] = sw
			}
			known := now[hop].known || f.Cluster.NumberedBy == "" || sw == "" || f.control[sw] || more && first != sw
			now[hop] = reservation{is: "the next hop of gateway " + name, hop: true, known: known}
		}
	}
	for _, name := range gateways {
		g := f.Cluster.Gateways[name]
		for _, ip := range g.IPs {
			now[ip.Addr()] = reservation{is: "the address of gateway " + name, node: f.NodeOn(g.Chassis)}
		}
	}
}

// Reserved reports whether no Node gets an address just by reporting it, and no gateway may answer for it. Whether a Service
// may have the address of a router outside is decided by service.Network. One node's claim to a next hop silences no gateway.
func (f *Facts) Reserved(a netip.Addr) bool {
	r, reserved := f.reserved.of[a]
	return reserved && (!r.hop || r.known)
}

// Router reports whether an address is that of a router outside: gateways of two nodes send there, or one on a host of the control
// plane or of the administrator. The credential of a kubelet suffices for a gateway with any next hop.
func (f *Facts) Router(a netip.Addr) bool { return f.reserved.of[a].known }

// ChangedReservations are the addresses with another reservation.
func (c Change) ChangedReservations() []netip.Addr {
	return slices.Collect(maps.Keys(OtherKeys(c.Was.reserved.of, c.Now.reserved.of, Same)))
}

// refused returns the reason why a node does not get a reported address, "" if it does.
func (r reports) refused(f *Facts, h host, a netip.Addr) string {
	if why := cmp.Or(liesIn(f.Cluster.Subnets, a), liesIn(f.Cluster.Join, a)); why != "" {
		return why
	}
	sw := names.NodeSwitch(h.name)
	by, ok := f.reserved.of[a]
	switch {
	case !ok || by.node == sw:
		return ""
	case by.prove && f.proven(h, a):
		return ""
	case by.hop && r.mayRoute(f, h, a):
		return ""
	case by.prove:
		return fmt.Sprintf("is %s: if the node is that host, label it %s=", by.is, names.LabelControlPlane)
	}
	return "is " + by.is
}

// mayRoute reports whether a host has an address although gateways send there: it may be their router. The credential of a kubelet
// suffices for a gateway with any next hop, and for a report of the router's address. So both count alike: the oldest host is
// right. Without a program that numbers nodes the administrator made the gateways, and also those of hosts that are no nodes.
func (r reports) mayRoute(f *Facts, h host, hop netip.Addr) bool {
	if h.control {
		return true
	}
	for _, g := range f.Cluster.Gateways {
		if !slices.Contains(g.Reserves(), hop) {
			continue
		}
		sw := f.NodeOn(g.Chassis)
		if o, known := r.hosts[sw]; f.Cluster.NumberedBy == "" || sw == "" || known && o.compareAge(h) < 0 {
			return false
		}
	}
	return true
}

// proven reports whether another source than its kubelet shows that a node is a host of the control plane: its label,
// protected from kubelets by the admission plugin NodeRestriction, or its tunnel address. Without a Southbound
// database every node counts as proven.
func (f *Facts) proven(h host, a netip.Addr) bool {
	return h.control || f.hasTunnel(names.NodeSwitch(h.name), a)
}

// hasTunnel reports whether an address is the tunnel address of a node's host. Without a Southbound database all are.
func (f *Facts) hasTunnel(sw string, a netip.Addr) bool {
	tunnels := f.reserved.tunnels
	return tunnels == nil || slices.Contains(tunnels[f.Cluster.Chassis[sw]], a)
}
