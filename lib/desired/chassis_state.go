package desired

import "net/netip"

// Registered says whether a chassis is in the Southbound database: "yes", "no", or "unknown".
func (w *World) Registered(chassis string) string {
	switch {
	case w.gateways.chassis == nil || chassis == "":
		return "unknown"
	case w.gateways.chassis[chassis]:
		return "yes"
	}
	return "no"
}

// Absent are the nodes with a chassis missing in the Southbound database, and that chassis.
func (w *World) Absent() map[string]string {
	absent := map[string]string{}
	for node, chassis := range w.cluster.Chassis {
		if w.Registered(chassis) == "no" {
			absent[node] = chassis
		}
	}
	return absent
}

// Unanswered reports whether the host of a gateway is unhealthy.
func (w *World) Unanswered(gateway string) bool { return w.gateways.silent[gateway] }

// NodeAddresses are the addresses of a node, by the name of its switch.
func (w *World) NodeAddresses(node string) []netip.Addr { return w.hosts[node] }
