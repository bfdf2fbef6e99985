package south

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/lib/watcher/health"
)

// Problems lists the differences between the Southbound database and the network: hosts without ovn-controller,
// logical ports without a Port_Binding so far, tunnels with an MTU too small for packets of pods, and gateways
// declared down.
func Problems(ctx context.Context, c config.Config, log *logrus.Entry, n World, ports []string) []string {
	if c.OVNRemote == "" {
		log.Warn("the Southbound database is not compared: set external_ids:ovn-remote of Open_vSwitch on this host to its address")
		return nil
	}
	lines, err := problems(ctx, c, log, n, ports)
	if err != nil {
		lines = append(lines, fmt.Sprintf("! Southbound database: chassis, ports and MTUs are not known: %v", err))
	}
	return lines
}

// A World is the network to compare.
type World interface {
	health.World
	Disconnected(down map[string]bool) []desired.UnitProblem
}

func problems(ctx context.Context, c config.Config, log *logrus.Entry, n World, ports []string) ([]string, error) {
	sb, err := southbound.Open(ctx, c, log)
	if err != nil {
		return nil, err
	}
	defer sb.Close()
	chassis, _ := sb.Chassis()
	n.Put(facts.Registered(chassis))
	var lines []string
	absent := n.Facts().Absent()
	for _, node := range slices.Sorted(maps.Keys(absent)) {
		lines = append(lines, fmt.Sprintf("! Node %s: chassis %s is not in the Southbound database: check ovn-controller there", node, absent[node]))
	}
	bound, err := sb.PortBindings(ctx)
	if err != nil {
		return lines, err
	}
	down, err := sb.PortsDown(ctx)
	if err != nil {
		return lines, err
	}
	for _, problem := range n.Disconnected(down) {
		lines = append(lines, fmt.Sprintf("! %s: %v", problem.Unit, problem.Problem))
	}
	options, _ := sb.CMSOptions()
	return slices.Concat(lines, describeUnbound(ports, bound), describeTunnels(options), describeLargerPods(options), health.Problems(n, options), describeFirewalls(options)), nil
}

// describeUnbound counts the ports without a binding, and names the first.
func describeUnbound(ports []string, bound map[string]bool) []string {
	ports = slices.DeleteFunc(ports, func(p string) bool { return bound[p] })
	if len(ports) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("! logical ports of pods without a Port_Binding in the Southbound database: %d, %s first: check ovn-northd", len(ports), ports[0])}
}

// describeFirewalls lists the hosts with nftables chains that drop packets of pods, as reported by gateway helpers.
func describeFirewalls(options map[string]map[string]string) (lines []string) {
	for _, host := range slices.Sorted(maps.Keys(options)) {
		if chains := options[host][names.FirewallOption]; chains != "" {
			lines = append(lines, fmt.Sprintf("! Chassis %s: nftables may drop packets of pods there, in chain %s: see \"ovs-appctl -t ovn-k8s-gateway-helper reconcile/show\" there (with ovnkube: -t ovnkube)", host, strings.ReplaceAll(chains, "+", " and ")))
		}
	}
	return lines
}

// describeLargerPods lists the hosts with pods created under a larger MTU, as reported by gateway helpers.
func describeLargerPods(options map[string]map[string]string) (lines []string) {
	for _, host := range slices.Sorted(maps.Keys(options)) {
		if count := options[host][names.PodMTUOption]; count != "" {
			lines = append(lines, fmt.Sprintf("! Chassis %s: pods with a larger MTU than ovn-k8s-mtu: %s: the Event PodMTUTooLarge on the Node names the first; delete these pods to recreate them", host, count))
		}
	}
	return lines
}

// describeTunnels lists the hosts with tunnels too small for packets of pods, as reported by gateway helpers, and the
// MTUs of pods if there are several. options are those of hosts, by their system-ids.
func describeTunnels(options map[string]map[string]string) []string {
	var lines []string
	hosts := map[int][]string{} // by MTU of pods
	for _, host := range slices.Sorted(maps.Keys(options)) {
		mtu, needs, has, ok := config.ReadReport(options[host][names.MTUOption])
		if !ok {
			continue // no gateway helper of this release
		}
		hosts[mtu] = append(hosts[mtu], host)
		switch {
		case has == 0:
			lines = append(lines, fmt.Sprintf("! Chassis %s: ovn-encap-ip is not set or is no address of that host, so that no tunnel works: set external_ids:ovn-encap-ip of Open_vSwitch there", host))
		case needs > has:
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

// southTimeout bounds the time to wait for the Southbound database in a comparison.
const southTimeout = 5 * time.Second

// Tunnels reads the tunnel addresses of hosts once. Without a Southbound database they stay unknown.
func Tunnels(ctx context.Context, c config.Config, log *logrus.Entry) facts.Tunnels {
	if c.OVNRemote == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, southTimeout)
	defer cancel()
	sb, err := southbound.Open(ctx, c, nil)
	if err != nil {
		log.Warnf("comparing without the Southbound database: %v", err)
		return nil
	}
	defer sb.Close()
	return facts.Tunnels(sb.Tunnels())
}
