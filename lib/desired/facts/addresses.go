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

// newHost returns the host of a Node.
func newHost(node *corev1.Node) host {
	_, control := node.Labels[names.LabelControlPlane]
	h := host{name: node.Name, created: node.CreationTimestamp.Unix(), addrs: hostAddrs(node.Status.Addresses), control: control}
	if h.left = len(h.addrs) - maxAddrs; h.left > 0 {
		h.addrs = h.addrs[:maxAddrs]
	}
	return h
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

// same reports whether two hosts have equal claims.
func (h host) same(o host) bool {
	return slices.Equal(h.addrs, o.addrs) && (h.addrs == nil || h.created == o.created && h.control == o.control) && max(h.left, 0) == max(o.left, 0)
}

// before orders hosts with a claim to one address by their right to it: the older one was right once.
func (h host) before(o host) int {
	return cmp.Or(cmp.Compare(h.created, o.created), strings.Compare(h.name, o.name))
}

// said records the hosts with a claim to each address, those with the better right first.
type said struct {
	hosts map[string]host // by name of the switch
	of    map[netip.Addr][]host
}

// putNode records the addresses of a node; its pods always reach them. None means unknown. It returns the switches of
// all nodes affected.
func (s said) putNode(node *corev1.Node) []string {
	sw, h := names.NodeSwitch(node.Name), newHost(node)
	if s.hosts[sw].same(h) {
		return nil
	}
	return s.put(sw, h)
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

// owner is the node with the right to an address: the oldest of those allowed to have it.
func (s said) owner(f *Facts, a netip.Addr) (host, bool) {
	for _, h := range s.of[a] {
		if f.refused(h, a) == "" {
			return h, true
		}
	}
	return host{}, false
}

// judge decides again which addresses some nodes have.
func (x *Index) judge(f *Facts, switches []string) Change {
	c := Change{Judged: switches, Surroundings: len(switches) > 0}
	for _, sw := range switches {
		var now []netip.Addr
		for _, a := range x.said.hosts[sw].addrs {
			if h, ok := x.said.owner(f, a); ok && names.NodeSwitch(h.name) == sw {
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
	if c.Moved != nil {
		f.Ranges = f.ranges()
	}
	return c
}

// refusal says why a node does not have all addresses that it reports, "" if it does.
func (s said) refusal(f *Facts, sw string) string {
	h := s.hosts[sw]
	if h.left > 0 {
		return fmt.Sprintf("node %s has %d addresses, of which %d are used", sw, len(h.addrs)+h.left, len(h.addrs))
	}
	for _, a := range h.addrs {
		if why := s.notOf(f, sw, a); why != "" {
			return fmt.Sprintf("address %s of node %s %s: pods do not reach the node there", a, sw, why)
		}
	}
	return ""
}

// notOf returns the reason why an address is not a host's, or unusable as one, or "".
func (s said) notOf(f *Facts, sw string, a netip.Addr) string {
	if why := f.refused(s.hosts[sw], a); why != "" {
		return why
	}
	if holder, ok := s.owner(f, a); ok && names.NodeSwitch(holder.name) != sw {
		return "is that of node " + holder.name
	}
	if ipnet.Unusable(a) != "" {
		return "is none that others can send to"
	}
	inside := append(f.Inside(), f.Ranges...)
	if i := slices.IndexFunc(inside, func(p netip.Prefix) bool { return p.Contains(a) }); i >= 0 {
		return fmt.Sprintf("lies in %s, which is for pods or services", inside[i])
	}
	return ""
}
