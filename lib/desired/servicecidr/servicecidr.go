// Package servicecidr has the subnets of Services: those of the settings and of ServiceCIDRs, and the rows that reject
// packets to addresses there without a Service.
package servicecidr

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Ranges are the known subnets of cluster IPs.
type Ranges []netip.Prefix

// Of are the valid subnets of a ServiceCIDR.
func Of(o *networkingv1.ServiceCIDR) Ranges {
	var out Ranges
	for _, text := range o.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil { // the API server takes no others
			out = append(out, p.Masked())
		}
	}
	return out
}

// Join returns all subnets of several, sorted, without those within another one.
func Join(all ...Ranges) Ranges {
	sorted := slices.Concat(all...)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	var out Ranges
	for _, p := range sorted {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Overlaps(p) }) {
			out = append(out, p)
		}
	}
	return out
}

// A Holder is a node with an address. Proven: more than the report of its kubelet shows that it is a host's.
type Holder struct {
	Node   string
	Addr   netip.Addr
	Proven bool
}

// OfNodes reports whether a subnet is one of nodes: it has a proven address, or addresses of two nodes. No single node may switch
// a ServiceCIDR off.
func OfNodes(p netip.Prefix, all iter.Seq[Holder]) bool {
	there := map[string]bool{}
	for h := range all {
		if !p.Contains(h.Addr) {
			continue
		}
		if there[h.Node] = true; h.Proven || len(there) > 1 {
			return true
		}
	}
	return false
}

// Unit owns the rows shared by all Services.
const Unit nb.Unit = "services"

// refusePriority is above all ACLs with the action allow.
const refusePriority = 32767

// Rows returns the ACLs that reject packets of a node's pods, and of the node itself, to a cluster IP without a load
// balancer for them: without such a port, without an endpoint on the node, or without a Service. Otherwise the
// packets would leave by the default route.
func (r Ranges) Rows(switches []string) []nb.Row {
	var in []nb.Ref
	for _, sw := range switches {
		in = append(in, nb.Ref{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "acls"})
	}
	if len(in) == 0 {
		return nil
	}
	var rows []nb.Row
	for _, p := range r {
		name := "unknown service " + p.String()
		rows = append(rows, nb.Row{
			Table: nbdb.ACLTable, ID: string(Unit) + "/" + p.String(), In: in,
			Model: &nbdb.ACL{
				Name: &name, Priority: refusePriority, Direction: nbdb.ACLDirectionFromLport, Action: nbdb.ACLActionReject,
				Match:   match(p),
				Options: map[string]string{names.AfterLB: "true"},
			},
		})
	}
	return rows
}

// match matches packets to a subnet.
func match(p netip.Prefix) string {
	if p.Addr().Is4() {
		return fmt.Sprintf("ip4.dst == %s", p)
	}
	return fmt.Sprintf("ip6.dst == %s", p)
}

// Have reports whether a lies within r, or r is not known for its family.
func (r Ranges) Have(a netip.Addr) bool {
	known := slices.ContainsFunc(r, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() })
	return !known || slices.ContainsFunc(r, func(p netip.Prefix) bool { return p.Contains(a) })
}
