package watcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
)

// narrowTunnels lists the hosts whose tunnels do not carry the packets of pods, as their gateway helpers say in the
// Southbound database, and the MTUs of pods if there are several.
func (e *engine) narrowTunnels(ctx context.Context) []string {
	if e.links.config.OVNRemote == "" {
		return nil
	}
	sb, err := ovsdb.OpenSouth(ctx, e.links.config, e.log)
	if err != nil {
		return []string{fmt.Sprintf("! Southbound database: MTUs of tunnels are not known: %v", err)}
	}
	defer sb.Close()
	options, _ := sb.CMSOptions()
	return describeTunnels(options)
}

// describeTunnels is narrowTunnels of the options of hosts, by their system-ids.
func describeTunnels(options map[string]map[string]string) []string {
	var lines []string
	hosts := map[int][]string{} // by MTU of pods
	for _, host := range slices.Sorted(maps.Keys(options)) {
		mtu, needs, has, ok := config.ReadReport(options[host][names.MTUOption])
		if !ok {
			continue // no gateway helper of this release
		}
		hosts[mtu] = append(hosts[mtu], host)
		if needs > has {
			lines = append(lines, fmt.Sprintf("! Chassis %s: mtu %d of pods is too large for tunnels: packets have %d bytes with headers, the NIC takes %d: set ovn-k8s-mtu to %d or less on all hosts", host, mtu, needs, has, mtu-(needs-has)))
		}
	}
	if len(hosts) < 2 {
		return lines
	}
	var all []string
	for _, mtu := range slices.Sorted(maps.Keys(hosts)) {
		all = append(all, fmt.Sprintf("%d (%d hosts, such as %s)", mtu, len(hosts[mtu]), hosts[mtu][0]))
	}
	return append(lines, "! hosts have different MTUs of pods: "+strings.Join(all, ", ")+": set the same ovn-k8s-mtu on all")
}
