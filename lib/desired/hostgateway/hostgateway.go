// Package hostgateway decides with which interface, addresses and next hops a host is the gateway of its node. It computes
// from the options of ovnkube and the host's network: two hosts with the same get the same.
package hostgateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// Options are those of the gateway.
type Options struct {
	Mode      string       // a mode of package topology
	Interface string       // a NIC or a bridge; "": that of the default route
	NextHops  []netip.Addr // none: those of the default routes
	VLAN      int
}

// A Route is a default route.
type Route struct {
	Interface string
	Via       netip.Addr
}

// An Interface is a network interface of the host.
type Interface struct {
	Bridge    string    // the Open vSwitch bridge with it as a port; a bridge has itself
	Addresses []Address // the oldest first
}

// An Address is an address of an interface.
type Address struct {
	netip.Prefix
	Temporary, Deprecated bool // of IPv6
}

// A Host is the network of a host.
type Host struct {
	Interfaces map[string]Interface
	Routes     []Route        // the preferred ones of each family first
	Pods       []netip.Prefix // the node's subnets; the gateway has their families
	Present    []netip.Prefix // addresses of the gateway so far; none if they are unknown
	Node       []netip.Addr   // addresses of the Node, the preferred ones first
}

// A Decision is the gateway that the host should be.
type Decision struct {
	topology.Gateway
	// Move is a NIC to be moved to Gateway.Interface, a bridge, before the host can be the gateway. Then the addresses and
	// next hops are unknown: decide again after the move.
	Move string
	// LeftOut are the reasons against families missing in the gateway, though there are default routes.
	LeftOut []string
}

// Decide computes the gateway. The error says what is missing.
func Decide(o Options, h Host) (Decision, error) {
	d := Decision{Gateway: topology.Gateway{Mode: o.Mode, VLAN: o.VLAN}}
	if o.Mode == topology.Local {
		d.Interface = names.LocalBridge
		return d, nil
	}
	var err error
	if d.Interface, err = h.find(o.Interface); err != nil {
		return Decision{}, err
	}
	if o.Mode == topology.Bridge {
		if d.Interface, d.Move, err = h.share(d.Interface); err != nil || d.Move != "" {
			return d, err
		}
	}
	if in := h.Interfaces[d.Interface].Bridge; o.Mode == topology.Physical && in != "" && in != names.IntegrationBridge {
		return Decision{}, fmt.Errorf("%s is a port of bridge %s: take it out of the bridge, or give another gateway-interface, or gateway-mode shared", d.Interface, in)
	}
	if err := h.connect(o, &d); err != nil {
		return Decision{}, err
	}
	return d, nil
}

// connect adds addresses and next hops of the families with both. It fails without any, and for a family that was asked for, or
// that the gateway has: its address may come back.
func (h Host) connect(o Options, d *Decision) error {
	var missing error
	for _, family := range h.families() {
		via, ok := h.nextHop(o.NextHops, d.Interface, family)
		if !ok {
			continue
		}
		address, ok := h.address(d.Interface, via)
		if ok {
			d.IPs, d.NextHops = append(d.IPs, address), append(d.NextHops, via)
			continue
		}
		missing = fmt.Errorf("interface %s of the gateway has the next hop %s, but no address of IPv%d: give it one, or another gateway-interface", d.Interface, via, version(family))
		if slices.Contains(o.NextHops, via) || slices.ContainsFunc(h.Present, func(p netip.Prefix) bool { return ipnet.SameFamily(p.Addr(), family) }) {
			return missing
		}
		d.LeftOut = append(d.LeftOut, fmt.Sprintf("interface %s of the gateway has the default route via %s, but no address of IPv%d: the gateway is without this family until you give it one", d.Interface, via, version(family)))
	}
	switch {
	case len(d.IPs) > 0:
		return nil
	case missing != nil:
		return missing
	}
	return fmt.Errorf("no default route leads through %s, the interface of the gateway: add one, or give gateway-nexthop, or another gateway-interface", d.Interface)
}

// Egress returns the node's subnets of the gateway's families: the node's pods leave by their own gateway while it is up.
func Egress(g topology.Gateway, subnets []netip.Prefix) (own []netip.Prefix) {
	for _, s := range subnets {
		if slices.ContainsFunc(g.IPs, func(ip netip.Prefix) bool { return ipnet.SameFamily(ip.Addr(), s.Addr()) }) {
			own = append(own, s)
		}
	}
	return own
}

// Displaced returns a NIC that is a port of its bridge, but has the host's addresses itself, as after a reboot: "" if there
// is none.
func (h Host) Displaced(bridge string) string {
	nic := moved(bridge)
	if i, ok := h.Interfaces[nic]; ok && nic != "" && i.Bridge == bridge && len(i.Addresses) > 0 {
		return nic
	}
	return ""
}

// Release makes h the host with what a NIC has once it is no port of Open vSwitch any more: addresses, and next hops of default
// routes.
func (h *Host) Release(nic string, addresses []Address, nextHops []netip.Addr) {
	h.Interfaces[nic] = Interface{Addresses: addresses}
	for _, via := range nextHops {
		h.Routes = append(h.Routes, Route{Interface: nic, Via: via})
	}
}

// Unmove is Release for a NIC whose addresses and routes are those of its bridge.
func (h *Host) Unmove(nic, bridge string) {
	var nextHops []netip.Addr
	for _, r := range h.Routes {
		if r.Interface == bridge {
			nextHops = append(nextHops, r.Via)
		}
	}
	h.Release(nic, h.Interfaces[bridge].Addresses, nextHops)
}

// bridgePrefix and a NIC's name are the name of the bridge to which ovn-k8s-util moves it.
const bridgePrefix = "br"

// moved is the NIC that would be moved to a bridge, "" if none would.
func moved(bridge string) string {
	if len(bridge) <= len(bridgePrefix) || bridge[:len(bridgePrefix)] != bridgePrefix {
		return ""
	}
	return bridge[len(bridgePrefix):]
}

var errNoDefault = errors.New("this host has no default route: add one, or give gateway-interface and gateway-nexthop")

// find returns the interface of the option, or else that of the first default route.
func (h Host) find(option string) (string, error) {
	name := option
	if name == "" {
		families := h.families()
		i := slices.IndexFunc(h.Routes, func(r Route) bool {
			return slices.ContainsFunc(families, func(f netip.Addr) bool { return ipnet.SameFamily(f, r.Via) })
		})
		if i < 0 {
			return "", errNoDefault
		}
		name = h.Routes[i].Interface
	}
	if _, ok := h.Interfaces[name]; !ok {
		return "", fmt.Errorf("interface %s of the gateway not found: list interfaces with \"ip link\", or give another gateway-interface", name)
	}
	return name, nil
}

// share returns the bridge that shares an interface with the gateway, and the NIC to be moved to it first, "" if none.
func (h Host) share(name string) (bridge, move string, err error) {
	i := h.Interfaces[name]
	switch {
	case i.Bridge == names.IntegrationBridge && name != names.IntegrationBridge:
		return "", "", fmt.Errorf("%s is a port of %s, for OVN alone: give another gateway-interface, or gateway-mode spare", name, i.Bridge)
	case i.Bridge == "":
		return bridgePrefix + name, name, nil
	}
	if nic := h.Displaced(i.Bridge); nic != "" {
		return i.Bridge, nic, nil
	}
	if len(h.Interfaces[i.Bridge].Addresses) == 0 {
		return "", "", fmt.Errorf("bridge %s of the gateway has no address: give it one, or another gateway-interface", i.Bridge)
	}
	return i.Bridge, "", nil
}

// families returns an address of each family of the node's subnets, IPv4 first.
func (h Host) families() (all []netip.Addr) {
	for _, f := range ipnet.Families() {
		if slices.ContainsFunc(h.Pods, func(p netip.Prefix) bool { return ipnet.SameFamily(p.Addr(), f) }) {
			all = append(all, f)
		}
	}
	return all
}

// nextHop returns the next hop of a family: that of the options, or else of the default route through an interface.
func (h Host) nextHop(given []netip.Addr, name string, family netip.Addr) (netip.Addr, bool) {
	for _, a := range given {
		if ipnet.SameFamily(a, family) {
			return a, true
		}
	}
	for _, r := range h.Routes {
		if r.Interface == name && ipnet.SameFamily(r.Via, family) {
			return r.Via, true
		}
	}
	return netip.Addr{}, false
}

// address returns an interface's address for a next hop. The present address stays while the interface has it: programs add
// and remove others, such as temporary and virtual ones. It goes if another one is nearer to the next hop: that was changed, or
// the other one was away for a moment. A new address of IPv6 is the Node's, or else the best one.
func (h Host) address(name string, via netip.Addr) (netip.Prefix, bool) {
	all := slices.DeleteFunc(slices.Clone(h.Interfaces[name].Addresses), func(a Address) bool { return !ipnet.SameFamily(a.Addr(), via) })
	for _, was := range h.Present {
		ip, ok := best(all, was.Addr(), via)
		if ok && !slices.ContainsFunc(all, func(a Address) bool { return a.nearer(ip, via) }) {
			return ip.Prefix, true
		}
	}
	for _, a := range h.Node {
		if ip, ok := best(all, a, via); ok && via.Is6() {
			return ip.Prefix, true
		}
	}
	ip, ok := best(all, netip.Addr{}, via)
	return ip.Prefix, ok
}

// nearer reports whether the next hop is in the subnet of a, and not in that of b. A single address of IPv6, as of DHCPv6, is in
// the subnet of another one with the same prefix. A temporary address is not nearer than a lasting one.
func (a Address) nearer(b Address, via netip.Addr) bool {
	within := b.Masked().Contains(via) || via.Is6() && b.IsSingleIP() && a.Masked().Contains(b.Addr())
	return a.Masked().Contains(via) && !within && a.fault(via) < b.fault(via)
}

// best returns the first one of the best entries for a next hop. If only is valid, they have that address.
func best(all []Address, only, via netip.Addr) (Address, bool) {
	all = slices.DeleteFunc(slices.Clone(all), func(a Address) bool { return only.IsValid() && a.Addr() != only })
	if len(all) == 0 {
		return Address{}, false
	}
	return slices.MinFunc(all, func(a, b Address) int { return a.fault(via) - b.fault(via) }), true
}

// fault is 0 for an address that fits best to a next hop. An address of IPv6 should last: temporary ones change, and virtual
// ones, which move between hosts, are deprecated or of full length. So are those of DHCPv6, often the only ones.
func (a Address) fault(via netip.Addr) (points int) {
	if via.Is6() && (a.Temporary || a.Deprecated) {
		points += 4
	}
	if !a.Masked().Contains(via) {
		points += 2
	}
	if via.Is6() && a.IsSingleIP() {
		points++
	}
	return points
}

func version(family netip.Addr) int {
	if family.Is4() {
		return 4
	}
	return 6
}

// TunnelAddress returns the host's address for tunnels: the first candidate that is an address of the host, IPv4 before
// IPv6. ok is false if there is none.
func TunnelAddress(candidates []netip.Addr, h Host) (a netip.Addr, ok bool) {
	for _, family := range ipnet.Families() {
		for _, c := range candidates {
			if ipnet.SameFamily(c, family) && h.has(c) {
				return c, true
			}
		}
	}
	return netip.Addr{}, false
}

// NodeAddresses returns the addresses of a Node, none without one, in the order of the given types.
func NodeAddresses(node *corev1.Node, types ...corev1.NodeAddressType) (all []netip.Addr) {
	if node == nil {
		return nil
	}
	for _, want := range types {
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == want {
				all = append(all, ip)
			}
		}
	}
	return all
}

func (h Host) has(a netip.Addr) bool {
	if a.IsLoopback() {
		return false
	}
	for _, i := range h.Interfaces {
		if slices.ContainsFunc(i.Addresses, func(p Address) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}
