// Package hostgateway decides with which interface, addresses and next hops a host is the gateway of its node. It computes
// from the options of ovnkube and the host's network: two hosts with the same get the same.
package hostgateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	Bridge    string // the Open vSwitch bridge with it as a port; a bridge has itself
	Addresses []netip.Prefix
}

// A Host is the network of a host.
type Host struct {
	Interfaces map[string]Interface
	Routes     []Route        // the preferred ones of each family first
	Pods       []netip.Prefix // the node's subnets; the gateway has their families
}

// A Decision is the gateway that the host should be.
type Decision struct {
	topology.Gateway
	// Move is a NIC to be moved to Gateway.Interface, a bridge, before the host can be the gateway. Then the addresses and
	// next hops are unknown: decide again after the move.
	Move string
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
	for _, family := range h.families() {
		via, ok := h.nextHop(o.NextHops, d.Interface, family)
		if !ok {
			continue
		}
		address, ok := h.address(d.Interface, via)
		if !ok {
			return Decision{}, fmt.Errorf("interface %s of the gateway has the next hop %s, but no address of IPv%d: give it one, or another gateway-interface", d.Interface, via, version(family))
		}
		d.IPs, d.NextHops = append(d.IPs, address), append(d.NextHops, via)
	}
	if len(d.IPs) == 0 {
		return Decision{}, fmt.Errorf("no default route leads through %s, the interface of the gateway: add one, or give gateway-nexthop, or another gateway-interface", d.Interface)
	}
	return d, nil
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

// address returns an interface's address in the subnet of a next hop, or else its first one of that family.
func (h Host) address(name string, via netip.Addr) (netip.Prefix, bool) {
	all := slices.DeleteFunc(slices.Clone(h.Interfaces[name].Addresses), func(a netip.Prefix) bool { return !ipnet.SameFamily(a.Addr(), via) })
	for _, a := range all {
		if a.Masked().Contains(via) {
			return a, true
		}
	}
	if len(all) == 0 {
		return netip.Prefix{}, false
	}
	return all[0], true
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

func (h Host) has(a netip.Addr) bool {
	if a.IsLoopback() {
		return false
	}
	for _, i := range h.Interfaces {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}
