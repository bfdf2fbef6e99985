package loadbalancer

import (
	"cmp"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Selection has the inputs of Load_Balancer.selection_fields in a cluster: see ovn-nb(5).
type Selection struct {
	// Userspace: a chassis has the userspace datapath, or may have it.
	Userspace bool
	// IPv6Source: the Northbound schema knows ipv6_src, as from OVN 25.03 on.
	IPv6Source bool
}

// ipv6Source is missing in the model of OVN 23.03.
const ipv6Source nbdb.LoadBalancerSelectionFields = "ipv6_src"

// selectBy sets the fields that Open vSwitch hashes to choose endpoints.
//
// Affinity is a hash of the client's address. OVN's affinity_timeout drops the packet from which it learns a client
// (northd.c, commit_lb_aff), and does not work in templates. A hash has no timeout: a client stays for longer.
func (l *Balancers) selectBy(s Selection, rows []nb.Row) []nb.Row {
	var out []nb.Row
	for _, row := range rows {
		switch lb := row.Model.(*nbdb.LoadBalancer); {
		case l.Affinity > 0:
			out = append(out, bySource(row, s)...)
			continue
		case s.Userspace && l.throughGateways(row):
			lb.SelectionFields = connectionFields()
		}
		out = append(out, row)
	}
	return out
}

// throughGateways reports whether clients outside may reach a load balancer by a gateway that changes their address.
// On the way to a pod on the gateway's node the userspace datapath would drop their packets at the seventh
// recirculation (MAX_RECIRC_DEPTH in dpif-netdev.c): a choice by the datapath's hash takes one, a choice by fields
// does not. On the kernel's datapath fields cost an upcall for each connection.
func (l *Balancers) throughGateways(row nb.Row) bool {
	lb := row.Model.(*nbdb.LoadBalancer)
	switch {
	case row.In[0].Table == nbdb.LogicalRouterTable:
		return !l.ExternalLocal
	case row.In[0].ID != names.LoadBalancerGroup:
		return false
	}
	for vip := range lb.Vips {
		if l.isOuter(vip) {
			return true
		}
	}
	return false
}

// bySource makes a load balancer choose endpoints by the client's address. OVN 23.03 can do so for IPv4 only. For
// IPv6 it uses the MAC: on a switch the pod's own, at a gateway that of the last router.
func bySource(row nb.Row, s Selection) []nb.Row {
	lb := row.Model.(*nbdb.LoadBalancer)
	if s.IPv6Source {
		lb.SelectionFields = []nbdb.LoadBalancerSelectionFields{nbdb.LoadBalancerSelectionFieldsIPSrc, ipv6Source}
		return []nb.Row{row}
	}
	four, six := vips{}, vips{}
	for vip, to := range lb.Vips {
		if isIPv6(vip) {
			six[vip] = to
		} else {
			four[vip] = to
		}
	}
	lb.SelectionFields = []nbdb.LoadBalancerSelectionFields{nbdb.LoadBalancerSelectionFieldsIPSrc}
	if len(six) == 0 {
		return []nb.Row{row}
	}
	other := *lb
	other.Vips, other.SelectionFields = six, []nbdb.LoadBalancerSelectionFields{nbdb.LoadBalancerSelectionFieldsEthSrc}
	if len(four) == 0 {
		row.Model = &other
		return []nb.Row{row}
	}
	lb.Vips = four
	other.Name = names.LoadBalancer(row.ID + sixSuffix)
	return []nb.Row{row, {Table: row.Table, ID: row.ID + sixSuffix, Model: &other, In: row.In}}
}

// isIPv6 reports whether a frontend has an IPv6 address. In templates, IPv4 addresses of Services are no variables.
func isIPv6(vip string) bool {
	return strings.HasPrefix(vip, "[") || strings.HasPrefix(vip, "^") && !strings.HasPrefix(vip, "^"+AddressVariable(0, 0)[:len(addressPrefix)+1])
}

// placed orders endpoints: when one is added or removed, nearly all others keep their places. Open vSwitch chooses
// among places by rendezvous hashing, so few clients change their endpoint.
//
// Each endpoint has a sequence of places, and takes the first free one.
func placed(es service.Endpoints) service.Endpoints {
	type candidate struct {
		hash uint64
		service.Endpoint
	}
	all := make([]candidate, len(es))
	for i, e := range es {
		h := uint64(e.Port)
		for _, b := range e.Addr.As16() {
			h = mix(h ^ uint64(b))
		}
		all[i] = candidate{h, e}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Compare(a.hash, b.hash)
	})
	out, full := make(service.Endpoints, len(es)), make([]bool, len(es))
	for _, c := range all {
		at, key := 0, c.hash
		for key = mix(key); ; key = mix(key) {
			if at = jump(key, len(es)); !full[at] {
				break
			}
		}
		out[at], full[at] = c.Endpoint, true
	}
	return out
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// jump is the jump consistent hash of Lamping and Veach: with one place more, a key stays or moves there.
func jump(key uint64, places int) int {
	at, next := 0, 0
	for next < places {
		at = next
		key = mix(key)
		next = int(float64(at+1) / (float64(key>>11+1) / (1 << 53)))
	}
	return at
}
