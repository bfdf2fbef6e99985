package membership

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// Displaced lists the logical ports of pods with addresses outside of their nodes' new subnets. For a node without a
// record it takes the pods plugged in on its host; node-remove may have left them.
func Displaced(s State, after topology.Cluster, node string, plugged map[string][]netip.Addr) []string {
	before := s.Topology()
	lost := map[string]bool{}
	for sw, subnets := range after.Nodes {
		if slices.Equal(before.Nodes[sw], subnets) {
			continue
		}
		for port, ips := range s.assigned(sw) {
			lost[port] = lost[port] || outside(ips, before.Nodes[sw], subnets)
		}
	}
	if before.Nodes[node] == nil {
		for port, ips := range plugged {
			lost[port] = lost[port] || outside(ips, nil, after.Nodes[node])
		}
	}
	maps.DeleteFunc(lost, func(_ string, gone bool) bool { return !gone })
	return slices.Sorted(maps.Keys(lost))
}

// ParseAddrs parses a list of addresses, with prefix lengths or without.
func ParseAddrs(list string) (ips []netip.Addr) {
	for text := range strings.SplitSeq(list, ",") {
		text, _, _ = strings.Cut(text, "/")
		if a, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, a)
		}
	}
	return ips
}

// assigned lists the addresses of the pods on a switch by logical port. If the watcher recorded other addresses for
// a running pod, it returns these.
func (s State) assigned(node string) map[string][]netip.Addr {
	of := map[string]bool{}
	for _, sw := range s.Switches {
		for _, uuid := range sw.Ports {
			of[uuid] = of[uuid] || sw.Name == node
		}
	}
	out := map[string][]netip.Addr{}
	for i := range s.Ports {
		if a, ok := pod.ReadAssignment(&s.Ports[i]); ok && of[s.Ports[i].UUID] {
			if running := s.Ports[i].ExternalIDs[names.RunningIPs]; running != "" {
				a.IPs = ParseAddrs(running)
			}
			out[s.Ports[i].Name] = a.IPs
		}
	}
	return out
}

// outside reports whether one of the addresses is in before, or before is nil, and not in after.
func outside(ips []netip.Addr, before, after []netip.Prefix) bool {
	return slices.ContainsFunc(ips, func(ip netip.Addr) bool {
		holds := func(p netip.Prefix) bool { return p.Contains(ip) }
		return (before == nil || slices.ContainsFunc(before, holds)) && !slices.ContainsFunc(after, holds)
	})
}

// RefuseDisplaced is an error if pods lose addresses, unless force is set.
func RefuseDisplaced(ports []string, force bool) error {
	if len(ports) == 0 || force {
		return nil
	}
	return fmt.Errorf("running pods have addresses outside of the subnets given: %s: give the subnets as they were, or drain the nodes of these pods first (kubectl drain); "+
		"with --force these pods lose their connections, and have no network until they are deleted and made again", enumerate(ports))
}

// WarnDisplaced returns the warning of the pods disconnected by force.
func WarnDisplaced(ports []string) string {
	return fmt.Sprintf("pods lost addresses, and with them their connections: %s: delete these pods, so that they are made again", enumerate(ports))
}
