package facts

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/servicecidr"
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

// isOwn reports whether a subnet of Services overlaps with the cluster's networks, or has an address of a node. A node's
// report of an address is no proof: no single node may switch a ServiceCIDR off.
func (f *Facts) isOwn(p netip.Prefix) bool {
	if slices.ContainsFunc(f.Cluster.Subnets, p.Overlaps) || slices.ContainsFunc(f.Cluster.Join, p.Overlaps) {
		return true
	}
	for sw, own := range f.Addresses {
		if slices.ContainsFunc(own, func(a netip.Addr) bool { return p.Contains(a) && f.hasTunnel(sw, a) }) {
			return true
		}
	}
	return false
}

// BadServiceCIDR is the first ServiceCIDR with a subnet that cannot be one of Services, and the reason: "" if there is
// none.
func (f *Facts) BadServiceCIDR() (name, why string) {
	for _, name := range slices.Sorted(maps.Keys(f.CIDRs)) {
		if i := slices.IndexFunc(f.CIDRs[name], f.isOwn); i >= 0 {
			return name, fmt.Sprintf("subnet %s of ServiceCIDR %s overlaps with the cluster's networks %s, or has the address of a node: nodes do not reach services there, make another one",
				f.CIDRs[name][i], name, ipnet.Join(f.Inside()))
		}
	}
	return "", ""
}
