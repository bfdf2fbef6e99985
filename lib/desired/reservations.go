package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
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
	of        map[netip.Addr]reservation
}

// A reservation describes an address, and the node allowed to have it.
type reservation struct {
	is    string
	node  string // its switch, or ""
	prove bool   // a node may have it with proof, see proven
}

// reserveAddresses computes the reservations again, and returns the units of the hosts affected.
func (w *World) reserveAddresses() []nb.Unit {
	old := w.reservations.of
	now := map[netip.Addr]reservation{}
	for id, addrs := range w.reservations.tunnels {
		if node := w.nodeOn(id); node != "" {
			for _, a := range addrs {
				now[a] = reservation{is: "the tunnel address of node " + node, node: node}
			}
		}
	}
	for _, a := range w.services.claims.Reserved() {
		now[a] = reservation{is: "an address of the API server", prove: true}
	}
	for a, is := range w.reservations.protected {
		now[a] = reservation{is: is, prove: true}
	}
	for _, name := range w.cluster.GatewayNames() {
		g := w.cluster.Gateways[name]
		for _, ip := range g.IPs {
			if g.Mode != topology.Local {
				now[ip.Addr()] = reservation{is: "the address of gateway " + name, node: w.nodeOn(g.Chassis)}
			}
		}
		for _, hop := range g.NextHops {
			if g.Mode != topology.Local {
				now[hop] = reservation{is: "the next hop of gateway " + name}
			}
		}
	}
	w.reservations.of = now
	affected := map[string]bool{}
	changed := slices.Collect(maps.Keys(otherKeys(old, now, func(a, b reservation) bool { return a == b })))
	for _, a := range changed {
		for _, h := range w.said.of[a] {
			affected[names.NodeSwitch(h.name)] = true
		}
	}
	for a, r := range now { // their proofs may have changed
		if r.prove {
			for _, h := range w.said.of[a] {
				affected[names.NodeSwitch(h.name)] = true
			}
		}
	}
	return append(w.rehost(slices.Sorted(maps.Keys(affected))), w.answerAgain(changed...)...)
}

// nodeOn is the node on the host with a system-id, "" if unknown.
func (w *World) nodeOn(id string) string { return w.services.chassis[id].node }

// refused returns the reason why a node does not get a reported address, "" if it does.
func (w *World) refused(h host, a netip.Addr) string {
	sw := names.NodeSwitch(h.name)
	r, ok := w.reservations.of[a]
	switch {
	case !ok || r.node == sw:
		return ""
	case r.prove && w.proven(h, a):
		return ""
	case r.prove:
		return fmt.Sprintf("is %s: if the node is that host, label it %s=", r.is, names.LabelControlPlane)
	}
	return "is " + r.is
}

// proven reports whether another source than its kubelet shows that a node is a host of the control plane: its label,
// protected from kubelets by the admission plugin NodeRestriction, or its tunnel address. Without a Southbound
// database every node counts as proven.
func (w *World) proven(h host, a netip.Addr) bool {
	tunnels := w.reservations.tunnels
	return h.control || tunnels == nil || slices.Contains(tunnels[w.cluster.Chassis[names.NodeSwitch(h.name)]], a)
}

// addressOwner is the node with the right to an address: the oldest of those allowed to have it.
func (w *World) addressOwner(a netip.Addr) (host, bool) {
	for _, h := range w.said.of[a] {
		if w.refused(h, a) == "" {
			return h, true
		}
	}
	return host{}, false
}

// putProtected records the addresses of the control plane.
func (w *World) putProtected(p Protected) []nb.Unit {
	w.reservations.protected = p
	return w.reserved()
}

// putTunnels records the tunnel addresses of hosts.
func (w *World) putTunnels(t Tunnels) []nb.Unit {
	if maps.EqualFunc(w.reservations.tunnels, t, slices.Equal) && (w.reservations.tunnels == nil) == (t == nil) {
		return nil
	}
	w.reservations.tunnels = t
	return w.reserved()
}

// reserved is reserveAddresses, with lookAround.
func (w *World) reserved() []nb.Unit {
	touched := w.reserveAddresses()
	if touched == nil {
		return nil
	}
	return append(touched, w.lookAround()...)
}

// reserveForAPIServer is reserved, if k is the Service of the API server.
func (w *World) reserveForAPIServer(k service.Key) []nb.Unit {
	if k != service.APIServer() {
		return nil
	}
	return w.reserved()
}
