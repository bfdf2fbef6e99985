package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
)

func (w *World) putServiceCIDR(o *networkingv1.ServiceCIDR) []nb.Unit {
	return w.putCIDRs(o.Name, servicecidr.Of(o))
}

func (w *World) removeServiceCIDR(name types.NamespacedName) []nb.Unit {
	return w.putCIDRs(name.Name, nil)
}

func (w *World) cidrNames() []types.NamespacedName { return clusterWide(maps.Keys(w.services.cidrs)) }

func (w *World) putRanges(r servicecidr.Ranges) []nb.Unit {
	w.services.configured = r
	return w.lookAround()
}

func (w *World) putSelection(s service.Selection) []nb.Unit {
	w.services.selection = s
	return w.lookAround()
}

// putCIDRs records the subnets of a ServiceCIDR.
func (w *World) putCIDRs(name string, now servicecidr.Ranges) []nb.Unit {
	if slices.Equal(w.services.cidrs[name], now) {
		return nil
	}
	if w.services.cidrs[name] = now; len(now) == 0 {
		delete(w.services.cidrs, name)
	}
	return append(w.lookAround(), servicecidr.Unit)
}

// ranges are the subnets of Services: those of the settings and of all ServiceCIDRs, without the cluster's own
// subnets. There, the ACLs of servicecidr.Unit would reject all packets to other destinations than Services.
func (w *World) ranges() servicecidr.Ranges {
	all := []servicecidr.Ranges{w.services.configured}
	for _, c := range w.services.cidrs {
		all = append(all, slices.DeleteFunc(slices.Clone(c), w.isOwn))
	}
	return servicecidr.Join(all...)
}

// isOwn reports whether a subnet of Services overlaps with the cluster's networks, or has an address of a node.
func (w *World) isOwn(p netip.Prefix) bool {
	if slices.ContainsFunc(w.cluster.Subnets, p.Overlaps) || slices.ContainsFunc(w.cluster.Join, p.Overlaps) {
		return true
	}
	for _, own := range w.hosts {
		if slices.ContainsFunc(own, p.Contains) {
			return true
		}
	}
	return false
}

// rangesRows returns the rows shared by all Services.
func (w *World) rangesRows() ([]nb.Row, error) {
	rows := w.services.around.Ranges.Rows(w.cluster.NodeNames())
	name := w.BadServiceCIDR()
	if name == "" {
		return rows, nil
	}
	cidrs := w.services.cidrs[name]
	p := cidrs[slices.IndexFunc(cidrs, w.isOwn)]
	return rows, &Problem{"BadServiceCIDR", fmt.Sprintf("subnet %s of ServiceCIDR %s overlaps with the cluster's networks %s, or has the address of a node: nodes do not reach services there, make another one",
		p, name, ipnet.Join(slices.Concat(w.cluster.Subnets, w.cluster.Join)))}
}

func (w *World) rangesUnits() []nb.Unit {
	if len(w.services.around.Ranges)+len(w.services.cidrs) == 0 {
		return nil
	}
	return []nb.Unit{servicecidr.Unit}
}

// BadServiceCIDR is the first ServiceCIDR with a subnet that isOwn, "" if there is none.
func (w *World) BadServiceCIDR() string {
	for _, name := range slices.Sorted(maps.Keys(w.services.cidrs)) {
		if slices.ContainsFunc(w.services.cidrs[name], w.isOwn) {
			return name
		}
	}
	return ""
}
