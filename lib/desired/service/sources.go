package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Priorities of the ACLs of source ranges. They decide before load balancing,
// network policies after it: neither overrules the other.
const (
	closedPriority = 1000
	openPriority   = 1001
)

// sourceRows returns the ACLs by which only the source ranges connect to the
// addresses of a load balancer: one lets these in, the other drops the rest. They
// are on the switches of nodes, and on those between gateways and their NICs.
//
// Two, since what is not in several subnets would become a flow for each way in
// which the bits of an address can differ from all of them.
func (r *Resolved) sourceRows() []nb.Row {
	var closed, open []string
	for _, d := range r.doors() {
		to := fmt.Sprintf("ip%d.dst == %s && %s", 4+2*d.f, oneOf(d.addrs), d.ports)
		closed = append(closed, "("+to+")")
		if from := sameFamily(r.SourceRanges, d.f); len(from) > 0 {
			open = append(open, fmt.Sprintf("(%s && ip%d.src == %s)", to, 4+2*d.f, oneOf(from)))
		}
	}
	var rows []nb.Row
	add := func(name string, priority int, action nbdb.ACLAction, matches []string) {
		if len(matches) > 0 {
			rows = append(rows, nb.Row{
				Table: nbdb.ACLTable, ID: fmt.Sprintf("%s/sources/%s", r.Unit(), name),
				Model: &nbdb.ACL{Priority: priority, Direction: nbdb.ACLDirectionFromLport, Action: action, Match: strings.Join(matches, " || ")},
				In:    []nb.Ref{{Table: nbdb.PortGroupTable, ID: names.EntryPortGroup, Column: "acls"}},
			})
		}
	}
	add("closed", closedPriority, nbdb.ACLActionDrop, closed)
	add("open", openPriority, nbdb.ACLActionAllow, open)
	return rows
}

// guarded lists the addresses that source ranges restrict: those of a load
// balancer, of families in which not everybody may come.
func (r *Resolved) guarded() []netip.Addr {
	if len(r.SourceRanges) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Outside), func(a netip.Addr) bool {
		return slices.Contains(r.ExternalIPs, a) || slices.ContainsFunc(r.SourceRanges, func(p netip.Prefix) bool {
			return p.Bits() == 0 && ipnet.SameFamily(p.Addr(), a)
		})
	})
}

// A door is guarded addresses of one family with the same ports: to OVN a conjunction of addresses, ports and ranges,
// which takes as many flows as there are of these in sum.
type door struct {
	f     int
	ports string // as guardedPorts has them
	addrs []netip.Addr
}

// doors lists the doors of r, in the order of their first addresses.
func (r *Resolved) doors() (out []door) {
	type key struct {
		f     int
		ports string
	}
	at := map[key]int{}
	for _, a := range r.guarded() {
		k := key{family(a), r.guardedPorts(a)}
		if k.ports == "" {
			continue
		}
		i, known := at[k]
		if !known {
			i, at[k] = len(out), len(out)
			out = append(out, door{f: k.f, ports: k.ports})
		}
		out[i].addrs = append(out[i].addrs, a)
	}
	return out
}

// guardedPorts matches the ports of r at an address, "" if it has none there.
func (r *Resolved) guardedPorts(a netip.Addr) string {
	var all []string
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		var ports []number
		for _, p := range r.Ports {
			if p.Protocol == protocol && r.Has(Claim{a, protocol, p.Port}) {
				ports = append(ports, number(p.Port))
			}
		}
		if len(ports) > 0 {
			all = append(all, fmt.Sprintf("%s.dst == %s", strings.ToLower(string(protocol)), oneOf(ports)))
		}
	}
	if len(all) == 0 {
		return ""
	}
	ports := strings.Join(all, " || ")
	if len(all) > 1 {
		ports = "(" + ports + ")"
	}
	return ports
}

// A number is a port.
type number uint16

// String is the number as a match has it.
func (n number) String() string { return strconv.Itoa(int(n)) }

// oneOf is what a field is compared with: a value, or a set of several.
func oneOf[T fmt.Stringer](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String()
	}
	if len(words) == 1 {
		return words[0]
	}
	return "{" + strings.Join(words, ", ") + "}"
}
