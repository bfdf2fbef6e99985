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

// isOwn reports whether a subnet of Services overlaps with the cluster's networks, or is one of nodes. A kubelet's report of an
// address is no proof: no single node may switch a ServiceCIDR off. Proofs are the address of a tunnel, the label of the
// control plane, a gateway of the administrator, and reports of two nodes. Until the Southbound database is read, there are no
// tunnels: most such subnets have another proof, and the others would be switched off for a moment at each start.
func (f *Facts) isOwn(p netip.Prefix) bool {
	if slices.ContainsFunc(f.Cluster.Subnets, p.Overlaps) || slices.ContainsFunc(f.Cluster.Join, p.Overlaps) {
		return true
	}
	there := map[string]bool{}
	for sw, own := range f.Addresses {
		tunnels := f.reserved.tunnels[f.Cluster.Chassis[sw]]
		for _, a := range own {
			if !p.Contains(a) {
				continue
			}
			if there[sw] = true; f.control[sw] || slices.Contains(tunnels, a) {
				return true
			}
		}
	}
	for _, g := range f.Cluster.Gateways {
		if g.Mode == topology.Local || !slices.ContainsFunc(g.IPs, func(ip netip.Prefix) bool { return p.Contains(ip.Addr()) }) {
			continue
		}
		if there[g.Node] = true; f.Cluster.NumberedBy == "" { // else its node claims the address
			return true
		}
	}
	return len(there) > 1
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
