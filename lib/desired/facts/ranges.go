package facts

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
)

// ranges are the subnets of Services: those of the settings and of all ServiceCIDRs, without the cluster's own
// subnets. There, the ACLs of servicecidr.Unit would reject all packets to other destinations than Services.
func (f *Facts) ranges() servicecidr.Ranges {
	all := []servicecidr.Ranges{f.Configured}
	for _, c := range f.CIDRs {
		all = append(all, slices.DeleteFunc(slices.Clone(c), f.isOwn))
	}
	return servicecidr.Join(all...)
}

// isOwn reports whether a subnet of Services overlaps with the cluster's networks, or is one of nodes.
func (f *Facts) isOwn(p netip.Prefix) bool {
	return slices.ContainsFunc(f.Cluster.Subnets, p.Overlaps) || slices.ContainsFunc(f.Cluster.Join, p.Overlaps) || servicecidr.OfNodes(p, f.holders)
}

// holders yields the addresses of nodes. Proofs are the address of a tunnel, the label of the control plane, and a gateway of the
// administrator. Until the Southbound database is read, there are no tunnels: most subnets of nodes have another proof, and the
// others would be switched off for a moment at each start.
func (f *Facts) holders(yield func(servicecidr.Holder) bool) {
	for sw, own := range f.Addresses {
		tunnels := f.reserved.tunnels[f.Cluster.Chassis[sw]]
		for _, a := range own {
			if !yield(servicecidr.Holder{Node: sw, Addr: a, Proven: f.control[sw] || slices.Contains(tunnels, a)}) {
				return
			}
		}
	}
	for _, g := range f.Cluster.Gateways {
		if g.Mode == topology.Local {
			continue
		}
		for _, ip := range g.IPs {
			// With another numbering its node claims the address.
			if !yield(servicecidr.Holder{Node: g.Node, Addr: ip.Addr(), Proven: f.Cluster.NumberedBy == ""}) {
				return
			}
		}
	}
}

// BadServiceCIDR is the first ServiceCIDR with a subnet that cannot be one of Services, and the reason: "" if there is
// none.
func (f *Facts) BadServiceCIDR() (name, why string) {
	for _, name := range slices.Sorted(maps.Keys(f.CIDRs)) {
		if i := slices.IndexFunc(f.CIDRs[name], f.isOwn); i >= 0 {
			return name, fmt.Sprintf("subnet %s of ServiceCIDR %s overlaps with the cluster's networks %s, or has addresses of nodes: nodes do not reach services there, make another one",
				f.CIDRs[name][i], name, ipnet.Join(f.Inside()))
		}
	}
	return "", ""
}
