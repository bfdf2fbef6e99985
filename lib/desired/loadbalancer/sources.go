package loadbalancer

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Priorities of the ACLs of source ranges. They apply before load balancing, network policies after it: neither
// overrides the other.
const (
	closedPriority = 1000
	openPriority   = 1001
)

// sourceRows returns the ACLs by which only the source ranges connect to the addresses of a load balancer: one allows
// them, the other drops the rest. They are on the switches of nodes, and on those between gateways and their NICs.
//
// There are two, because a match of all addresses outside several subnets would become a flow for each combination of
// bits that differ.
func (l *Balancers) sourceRows() []nb.Row {
	var closed, open []string
	for _, d := range l.guardedAddresses() {
		to := fmt.Sprintf("ip%d.dst == %s && %s", 4+2*d.f, nb.OneOf(d.addrs), d.ports)
		closed = append(closed, "("+to+")")
		if from := ipnet.OfFamily(l.SourceRanges, d.f); len(from) > 0 {
			open = append(open, fmt.Sprintf("(%s && ip%d.src == %s)", to, 4+2*d.f, nb.OneOf(from)))
		}
	}
	var rows []nb.Row
	add := func(name string, priority int, action nbdb.ACLAction, matches []string) {
		if len(matches) > 0 {
			rows = append(rows, nb.Row{
				Table: nbdb.ACLTable, ID: fmt.Sprintf("%s/sources/%s", l.Unit(), name),
				Model: &nbdb.ACL{Priority: priority, Direction: nbdb.ACLDirectionFromLport, Action: action, Match: strings.Join(matches, " || ")},
				In:    []nb.Ref{{Table: nbdb.PortGroupTable, ID: names.EntryPortGroup, Column: "acls"}},
			})
		}
	}
	add("closed", closedPriority, nbdb.ACLActionDrop, closed)
	add("open", openPriority, nbdb.ACLActionAllow, open)
	return rows
}

// A guarded value has addresses of load balancers, of one family and with the same ports. For OVN it is a conjunction
// of addresses, ports and ranges: it takes as many flows as the sum of these.
type guarded struct {
	f     int
	ports string // a match, see matchPorts
	addrs []netip.Addr
}

// guardedAddresses lists the guarded addresses of l, in the order of their first addresses.
func (l *Balancers) guardedAddresses() (out []guarded) {
	ports := map[netip.Addr][]service.Port{}
	var addrs []netip.Addr
	for _, of := range l.frontends {
		for _, f := range of {
			if !f.Guarded() {
				continue
			}
			if ports[f.Addr] == nil {
				addrs = append(addrs, f.Addr)
			}
			ports[f.Addr] = append(ports[f.Addr], f.Port())
		}
	}
	type key struct {
		f     int
		ports string
	}
	at := map[key]int{}
	for _, a := range addrs {
		k := key{ipnet.Family(a), matchPorts(ports[a])}
		i, known := at[k]
		if !known {
			i, at[k] = len(out), len(out)
			out = append(out, guarded{f: k.f, ports: k.ports})
		}
		out[i].addrs = append(out[i].addrs, a)
	}
	return out
}

// matchPorts matches some ports.
func matchPorts(ports []service.Port) string {
	numbers := map[corev1.Protocol][]uint16{}
	for _, p := range ports {
		numbers[p.Protocol] = append(numbers[p.Protocol], p.Port)
	}
	return nb.MatchPorts("dst", numbers)
}
