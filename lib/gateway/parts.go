package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/ipnet"
)

// The parts of a node, each reconciled by itself.
const (
	partPorts  = "ports"  // in Open vSwitch's database
	partZones  = "zones"  // of conntrack: timeouts in Open vSwitch's database
	partFlows  = "flows"  // of the shared bridge
	partRules4 = "rules4" // of the packet filter
	partRules6 = "rules6"
	partHealth = "health" // of health checks
	// of NodePorts with programs of this host
	partConflicts = "conflicts"
	// UDP connections with deleted endpoints
	partStale  = "stale"
	partRoutes = "routes" // to ServiceCIDRs
	partMTU    = "mtu"    // of tunnels
	// of a local gateway: interface, routing, rules
	partLocal      = "local gateway"
	partForwarding = "forwarding" // of IP packets
	partFirewall   = "firewall"   // other programs' rules
	partServices   = "services"   // see objects.Parts.Unresolved
)

// all lists the parts.
func (e *engine) all() []string {
	return append(partsOfServices(e.helper.Bridge, e.firewall), partPorts, partZones, partRoutes, partMTU, partLocal, partForwarding, partFirewall)
}

// turn orders the parts of a pass: those for packets come before those about databases and other programs.
func turn(a, b string) int {
	late := func(part string) bool {
		return !slices.Contains([]string{partFlows, partForwarding, partLocal, partRules4, partRules6}, part)
	}
	if late(a) != late(b) {
		return map[bool]int{true: 1, false: -1}[late(a)]
	}
	return strings.Compare(a, b)
}

// partsOfServices lists the parts with effects of Services and hostPorts on a host with a shared bridge, or "".
func partsOfServices(bridge string, firewalls map[string]*firewall.Firewall) []string {
	parts := append([]string{partHealth, partConflicts, partStale}, slices.Collect(maps.Keys(firewalls))...)
	if bridge != "" {
		parts = append(parts, partFlows)
	}
	return parts
}

// proxyParts lists the parts without which this host does not serve Services: rules of the families of this node's pods, of
// all while these are unknown, and flows while the bridge has a gateway. Without one the rules serve.
func proxyParts(firewalls map[string]*firewall.Firewall, v view, gateway bool) (parts []string) {
	for part, f := range firewalls {
		if len(v.host.Pods) == 0 || slices.ContainsFunc(v.host.Pods, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), f.Family()) }) {
			parts = append(parts, part)
		}
	}
	if gateway {
		parts = append(parts, partFlows)
	}
	return parts
}

// partsOfChange selects the parts affected by a change of a Service.
func partsOfChange(all []string, c nodeport.Change) []string {
	depends := map[string]bool{partRules4: c.Rules, partRules6: c.Rules, partFlows: c.Rules, partConflicts: c.Frontends, partStale: c.UDP, partHealth: c.Health}
	return slices.DeleteFunc(all, func(part string) bool { return !depends[part] })
}
