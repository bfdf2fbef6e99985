package desired

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// A host has the addresses in a Node. The Node's kubelet writes them, and packets of all pods to such an address go
// to the host: a node must not get an address of another by claiming it.
type host struct {
	name    string
	created int64 // seconds since 1970
	addrs   []netip.Addr
	left    int  // number of addresses above maxAddrs
	control bool // the Node has the label of the control plane
}

// maxAddrs is the maximum number of addresses used of a host. Each makes a route, and a frontend of each NodePort.
const maxAddrs = 64

// before orders hosts with a claim to one address by their right to it: the older one was right once.
func (h host) before(o host) int {
	return cmp.Or(cmp.Compare(h.created, o.created), strings.Compare(h.name, o.name))
}

// said records the hosts with a claim to each address, those with the better right first.
type said struct {
	hosts map[string]host // by name of the switch
	of    map[netip.Addr][]host
}

// put records the claims of a host, and returns the switches of all hosts affected.
func (s said) put(sw string, h host) []string {
	affected := map[string]bool{sw: true}
	drop := func(a netip.Addr) {
		s.of[a] = slices.DeleteFunc(s.of[a], func(o host) bool { return names.NodeSwitch(o.name) == sw })
		for _, o := range s.of[a] {
			affected[names.NodeSwitch(o.name)] = true
		}
		if len(s.of[a]) == 0 {
			delete(s.of, a)
		}
	}
	for _, a := range s.hosts[sw].addrs {
		drop(a)
	}
	if s.hosts[sw] = h; h.addrs == nil {
		delete(s.hosts, sw)
	}
	for _, a := range h.addrs {
		for _, o := range s.of[a] {
			affected[names.NodeSwitch(o.name)] = true
		}
		s.of[a] = append(s.of[a], h)
		slices.SortFunc(s.of[a], host.before)
	}
	return slices.Sorted(maps.Keys(affected))
}

// putHost records the addresses of a node; its pods always reach them. None means unknown. It returns the units of
// nodes only, and lookAround the others.
func (w *World) putHost(node *corev1.Node) []nb.Unit {
	_, control := node.Labels[names.LabelControlPlane]
	h := host{name: node.Name, created: node.CreationTimestamp.Unix(), addrs: hostAddrs(node.Status.Addresses), control: control}
	if h.left = len(h.addrs) - maxAddrs; h.left > 0 {
		h.addrs = h.addrs[:maxAddrs]
	}
	sw := names.NodeSwitch(node.Name)
	if was := w.said.hosts[sw]; slices.Equal(was.addrs, h.addrs) && (h.addrs == nil || was.created == h.created && was.control == h.control) && max(was.left, 0) == max(h.left, 0) {
		return nil
	}
	return w.rehost(w.said.put(sw, h))
}

// rehost decides again which addresses nodes have, and returns the units affected, without those of lookAround.
func (w *World) rehost(switches []string) (touched []nb.Unit) {
	for _, sw := range switches {
		touched = append(touched, topology.HostUnit(sw)) // at least its Problem may differ
		var now []netip.Addr
		for _, a := range w.said.hosts[sw].addrs {
			if h, ok := w.addressOwner(a); ok && names.NodeSwitch(h.name) == sw {
				now = append(now, a)
			}
		}
		if slices.Equal(w.hosts[sw], now) {
			continue
		}
		if w.hosts[sw] = now; now == nil {
			delete(w.hosts, sw)
		}
		touched = append(touched, policy.NodeUnit(sw))
		touched = append(touched, slices.Concat(w.chassisUnits(sw), w.hostPorts.units(sw))...)
	}
	return touched
}

// hostAddrs are the addresses of a Node, sorted.
func hostAddrs(list []corev1.NodeAddress) (out []netip.Addr) {
	for _, a := range list {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, ip.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// hostRows returns the routes to a node's own addresses. The Problem names its other claims.
func (w *World) hostRows(sw string) ([]nb.Row, error) {
	rows := w.cluster.HostRows(sw, w.hosts[sw])
	if h := w.said.hosts[sw]; h.left > 0 {
		return rows, &Problem{"BadNodeAddress", fmt.Sprintf("node %s has %d addresses, of which %d are used", sw, len(h.addrs)+h.left, len(h.addrs))}
	}
	for _, a := range w.said.hosts[sw].addrs {
		if why := w.notOf(sw, a); why != "" {
			return rows, &Problem{"BadNodeAddress", fmt.Sprintf("address %s of node %s %s: pods do not reach the node there", a, sw, why)}
		}
	}
	return rows, nil
}

func (w *World) hostUnits() []nb.Unit { return unitsOf(w.said.hosts, topology.HostUnit) }

// changedHosts returns the units of hosts affected by a change of the topology.
func (w *World) changedHosts(old topology.Cluster) (touched []nb.Unit) {
	now := w.cluster
	all := !slices.Equal(old.Subnets, now.Subnets) || !slices.Equal(old.Join, now.Join)
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		all = all || old.PinnedByPolicy(family) != now.PinnedByPolicy(family)
	}
	for sw := range w.said.hosts {
		if all || !slices.Equal(old.Nodes[sw], now.Nodes[sw]) {
			touched = append(touched, topology.HostUnit(sw))
		}
	}
	return touched
}

// notOf returns the reason why an address is not a host's, or unusable as one, or "".
func (w *World) notOf(sw string, a netip.Addr) string {
	holds := func(p netip.Prefix) bool { return p.Contains(a) }
	inside := append(slices.Clone(w.services.around.Inside), w.services.around.Ranges...)
	if why := w.refused(w.said.hosts[sw], a); why != "" {
		return why
	}
	if holder, ok := w.addressOwner(a); ok && names.NodeSwitch(holder.name) != sw {
		return "is that of node " + holder.name
	}
	if ipnet.Unusable(a) != "" {
		return "is none that others can send to"
	}
	if i := slices.IndexFunc(inside, holds); i >= 0 {
		return fmt.Sprintf("lies in %s, which is for pods or services", inside[i])
	}
	return ""
}
