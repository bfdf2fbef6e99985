package overlay

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// A leaver is an error if pods would lose addresses by a changed topology and must not.
type leaver func(w world, after topology.Cluster) error

// displaced returns a function to list the logical ports of pods with addresses outside of their nodes' new
// subnets. For a node without a record it takes the pods plugged in on this host; node-remove may have left them.
func (s *session) displaced(ctx context.Context, node string) (func(w world, after topology.Cluster) []string, error) {
	all, err := s.sw.Interfaces(ctx)
	if err != nil {
		return nil, err
	}
	plugged := map[string][]netip.Addr{}
	for _, i := range all {
		if i.ExternalIDs[names.Sandbox] != "" && i.Ofport >= 0 { // after a reboot, a sandbox leaves only its row
			plugged[i.ExternalIDs[names.IfaceID]] = parseAddrs(i.ExternalIDs[names.IPAddress])
		}
	}
	return func(w world, after topology.Cluster) []string {
		before := w.before()
		lost := map[string]bool{}
		for sw, subnets := range after.Nodes {
			if slices.Equal(before.Nodes[sw], subnets) {
				continue
			}
			for port, ips := range w.assigned(sw) {
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
	}, nil
}

// parseAddrs parses a list of addresses, with prefix lengths or without.
func parseAddrs(list string) (ips []netip.Addr) {
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
func (w world) assigned(node string) map[string][]netip.Addr {
	of := map[string]bool{}
	for _, sw := range w.switches {
		for _, uuid := range sw.Ports {
			of[uuid] = of[uuid] || sw.Name == node
		}
	}
	out := map[string][]netip.Addr{}
	for i := range w.ports {
		if a, ok := pod.ReadAssignment(&w.ports[i]); ok && of[w.ports[i].UUID] {
			if running := w.ports[i].ExternalIDs[names.RunningIPs]; running != "" {
				a.IPs = parseAddrs(running)
			}
			out[w.ports[i].Name] = a.IPs
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

// refuseDisplaced is an error if pods lose addresses, unless force is set.
func refuseDisplaced(ports []string, force bool) error {
	if len(ports) == 0 || force {
		return nil
	}
	return fmt.Errorf("running pods have addresses outside of the subnets given: %s: give the subnets as they were, or drain the nodes of these pods first (kubectl drain); "+
		"with --force these pods lose their connections, and have no network until they are deleted and made again", enumerate(ports))
}

// warnDisplaced warns of the pods disconnected by --force.
func (s *session) warnDisplaced(ports []string) {
	if len(ports) > 0 {
		s.Warn("pods lost addresses, and with them their connections: %s: delete these pods, so that they are made again", enumerate(ports))
	}
}
