package facts

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A host has the addresses in a Node. The Node's kubelet writes them, and packets of all pods to such an address go
// to the host: a node must not get an address of another by reporting it.
type host struct {
	name    string
	created int64 // seconds since 1970
	addrs   []netip.Addr
	left    int  // number of addresses above maxAddrs
	control bool // the Node has the label of the control plane
}

// maxAddrs is the maximum number of addresses used of a host. Each makes a route. maxFrontends is that of each family with
// frontends in OVN: each of them makes one of every NodePort, for all hosts.
const maxAddrs, maxFrontends = 64, 4

// newHost returns the host of a Node.
func newHost(node *corev1.Node) host {
	_, control := node.Labels[names.LabelControlPlane]
	h := host{name: node.Name, created: node.CreationTimestamp.Unix(), control: control}
	h.addrs, h.left = Reported(node.Status.Addresses)
	return h
}

// Reported are the first maxAddrs addresses in the status of a Node, sorted, and the number of the others.
func Reported(list []corev1.NodeAddress) (addrs []netip.Addr, left int) {
	addrs = hostAddrs(list)
	if left = len(addrs) - maxAddrs; left > 0 {
		return addrs[:maxAddrs], left
	}
	return addrs, 0
}

// Frontends are the first addresses of a host, at most maxFrontends of a family: OVN has NodePorts and hostPorts there. At the
// others the host itself serves them.
func Frontends(addrs []netip.Addr) (out []netip.Addr) {
	var n [2]int
	for _, a := range addrs {
		if f := ipnet.Family(a); n[f] < maxFrontends && ipnet.Unusable(a) == "" {
			out, n[f] = append(out, a), n[f]+1
		}
	}
	return out
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

// same reports whether two hosts have the same addresses, and the same right to them.
func (h host) same(o host) bool {
	return slices.Equal(h.addrs, o.addrs) && (h.addrs == nil || h.created == o.created && h.control == o.control) && h.left == o.left
}

// compareAge orders hosts that report one address by their right to it: the older one was right once.
func (h host) compareAge(o host) int {
	return cmp.Or(cmp.Compare(h.created, o.created), strings.Compare(h.name, o.name))
}

// reports has the hosts that report each address, those with the better right first.
type reports struct {
	hosts map[string]host // by name of the switch
	of    map[netip.Addr][]host
}

// putNode records the addresses of a node; its pods always reach them. None means unknown. It returns the switches of
// all nodes affected.
func (r reports) putNode(node *corev1.Node) []string {
	sw, h := names.NodeSwitch(node.Name), newHost(node)
	if r.hosts[sw].same(h) {
		return nil
	}
	return r.put(sw, h)
}

// put records the addresses that a host reports, and returns the switches of all hosts affected.
func (r reports) put(sw string, h host) []string {
	affected := map[string]bool{sw: true}
	drop := func(a netip.Addr) {
		r.of[a] = slices.DeleteFunc(r.of[a], func(o host) bool { return names.NodeSwitch(o.name) == sw })
		for _, o := range r.of[a] {
			affected[names.NodeSwitch(o.name)] = true
		}
		if len(r.of[a]) == 0 {
			delete(r.of, a)
		}
	}
	for _, a := range r.hosts[sw].addrs {
		drop(a)
	}
	if r.hosts[sw] = h; h.addrs == nil {
		delete(r.hosts, sw)
	}
	for _, a := range h.addrs {
		for _, o := range r.of[a] {
			affected[names.NodeSwitch(o.name)] = true
		}
		r.of[a] = append(r.of[a], h)
		slices.SortFunc(r.of[a], host.compareAge)
	}
	return slices.Sorted(maps.Keys(affected))
}

// owner is the node with the right to an address: the oldest of those allowed to have it.
func (r reports) owner(f *Facts, a netip.Addr) (host, bool) {
	for _, h := range r.of[a] {
		if r.refused(f, h, a) == "" {
			return h, true
		}
	}
	return host{}, false
}

// decideAddresses decides again which addresses some nodes have.
func (x *Index) decideAddresses(f *Facts, switches []string) Change {
	c := Change{Decided: switches, Surroundings: len(switches) > 0}
	control := copied[bool]{of: f.control}
	for _, sw := range switches {
		is := x.reports.hosts[sw].control
		control.set(sw, is, is)
		var now []netip.Addr
		for _, a := range x.reports.hosts[sw].addrs {
			if h, ok := x.reports.owner(f, a); ok && names.NodeSwitch(h.name) == sw {
				now = append(now, a)
			}
		}
		if slices.Equal(f.Addresses[sw], now) {
			continue
		}
		if c.Moved == nil {
			f.Addresses = cloned(f.Addresses)
		}
		c.Moved = append(c.Moved, sw)
		if f.Addresses[sw] = now; now == nil {
			delete(f.Addresses, sw)
		}
	}
	f.control = control.of
	if c.Moved != nil || control.own {
		f.Ranges = f.ranges()
	}
	return c
}

// refusal says why a node does not have all addresses that it reports, "" if it does.
func (r reports) refusal(f *Facts, sw string) string {
	h := r.hosts[sw]
	if h.left > 0 {
		return fmt.Sprintf("node %s has %d addresses, of which %d are used", sw, len(h.addrs)+h.left, len(h.addrs))
	}
	for _, a := range h.addrs {
		if why := r.notOf(f, sw, a); why != "" {
			return fmt.Sprintf("address %s of node %s %s: pods do not reach the node there", a, sw, why)
		}
	}
	if most := len(Frontends(h.addrs)); most < len(h.addrs) {
		return fmt.Sprintf("node %s has %d addresses, more than %d of a family: at %d of them the host alone serves NodePorts and hostPorts", sw, len(h.addrs), maxFrontends, len(h.addrs)-most)
	}
	return ""
}

// notOf returns the reason why an address is not a host's, or unusable as one, or "".
func (r reports) notOf(f *Facts, sw string, a netip.Addr) string {
	if why := r.refused(f, r.hosts[sw], a); why != "" {
		return why
	}
	if holder, ok := r.owner(f, a); ok && names.NodeSwitch(holder.name) != sw {
		return "is that of node " + holder.name
	}
	if ipnet.Unusable(a) != "" {
		return "is none that others can send to"
	}
	return liesIn(f.Ranges, a) // not refused: addresses of nodes decide about the subnets of Services
}

// liesIn names the first of some subnets of pods or Services with an address, "" if there is none.
func liesIn(subnets []netip.Prefix, a netip.Addr) string {
	if i := slices.IndexFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) }); i >= 0 {
		return fmt.Sprintf("lies in %s, which is for pods or services", subnets[i])
	}
	return ""
}
