package desired

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
)

// FactsChanged returns the units of Services and hosts affected by other facts.
func (x *Services) FactsChanged(c facts.Change) (touched []nb.Unit) {
	if c.Topology {
		for node := range c.ChangedSubnets() {
			for _, l := range x.local.on[node] {
				touched = append(touched, x.changedLocal(l.service, []string{node})...)
			}
		}
	}
	if c.Surroundings {
		touched = append(touched, x.updateInputs()...)
	}
	return touched
}

// putSelection records how OVN chooses endpoints.
func (x *Services) putSelection(s loadbalancer.Selection) []nb.Unit {
	x.selection = s
	if x.inputs.Selection == s {
		return nil
	}
	return x.updateInputs()
}

// updateInputs computes the inputs of Services again, and returns the units affected.
func (x *Services) updateInputs() (touched []nb.Unit) {
	old, now := x.inputs, inputs(x.facts.Now(), x.knownHosts, x.selection)
	x.inputs = now
	if !slices.Equal(old.Hosts, now.Hosts) {
		x.claims.SetHosts(now.Hosts)
	}
	touched = x.hosts.setAddresses(now.Addresses)
	d := differenceOf(old, now)
	touched = append(touched, x.answers.Again(slices.Collect(maps.Keys(d.addrs))...)...)
	if d.all {
		touched = append(touched, x.answers.Anywhere()...)
	}
	for k, s := range x.all {
		if d.concerns(s) {
			touched = append(touched, k.Unit())
			touched = append(touched, x.updateTraits(k)...)
		}
	}
	touched = append(touched, x.quotas.settle(x.updateTraits)...)
	return append(touched, x.chooseGateways()...)
}

// inputs returns the inputs of the rows of Services, other than Services.
func inputs(f *facts.Facts, known ports.Hosts, selection loadbalancer.Selection) loadbalancer.Inputs {
	hosts := slices.Concat(f.NodePortHosts(), known)
	slices.SortFunc(hosts, netip.Addr.Compare)
	now := loadbalancer.Inputs{
		Network: service.Network{Ranges: f.Ranges, Inside: f.Inside(), Hosts: slices.Compact(hosts)},
		Subnets: f.Cluster.Subnets, Gateways: map[string]loadbalancer.Gateway{},
		Selection: selection,
	}
	for _, sw := range f.Switches {
		now.Nodes = append(now.Nodes, service.Node{Name: sw, Zone: f.Zones[sw]})
	}
	for _, g := range f.Cluster.Gateways {
		now.Hops = append(now.Hops, slices.DeleteFunc(slices.Clone(g.Reserves()), now.IsHosts)...) // a host may be a router; other rules hold there
	}
	slices.SortFunc(now.Hops, netip.Addr.Compare)
	now.Routers = slices.DeleteFunc(slices.Compact(slices.Clone(now.Hops)), func(a netip.Addr) bool { return !f.Router(a) })
	for _, c := range f.Chassis {
		for f, addrs := range f.NodePortAddresses(c) {
			now.Addresses[f] = max(now.Addresses[f], len(addrs))
		}
		for _, g := range c.Gateways {
			gw := f.Cluster.Gateways[g]
			if gw.Mode == topology.Local || gw.Closed {
				continue // the host itself takes connections, or nobody does
			}
			own := f.Addresses[c.Node]
			now.Gateways[g] = loadbalancer.Gateway{Node: c.Node, Addrs: servedBy(gw, own), NodePorts: servedBy(gw, facts.Frontends(own))}
		}
	}
	return now
}

// servedBy returns the addresses of a gateway for frontends of hosts: its own, and on a NIC shared with its host those of the
// node, because the flows of the bridge lead clients there to the gateway.
func servedBy(gw topology.Gateway, node []netip.Addr) []netip.Addr {
	own := facts.Addrs(gw.IPs)
	if gw.Mode != topology.Bridge {
		return own
	}
	return append(own, slices.DeleteFunc(bridgeflows.Served(node, own, node), func(a netip.Addr) bool {
		return slices.Contains(own, a) || ipnet.Unusable(a) != ""
	})...)
}

// A difference describes a change of inputs.
type difference struct {
	all             bool                // any Service may be affected
	nodes, gateways bool                // some were added, removed or changed
	nodePorts       bool                // are at more or fewer addresses of hosts
	addrs           map[netip.Addr]bool // of hosts and next hops: added or removed
	hosts           map[netip.Addr]bool // addresses of hosts; nil if no gateway has changed
}

func differenceOf(old, now loadbalancer.Inputs) difference {
	d := difference{
		all:      !slices.Equal(old.Inside, now.Inside) || !slices.Equal(old.Ranges, now.Ranges) || old.Selection != now.Selection,
		nodes:    !slices.Equal(old.Nodes, now.Nodes),
		gateways: !maps.EqualFunc(old.Gateways, now.Gateways, loadbalancer.Gateway.Equal), nodePorts: old.Addresses != now.Addresses,
		addrs: map[netip.Addr]bool{},
	}
	addOthers(d.addrs, old.Hosts, now.Hosts)
	addOthers(d.addrs, old.Hops, now.Hops)
	addOthers(d.addrs, old.Routers, now.Routers)
	if d.gateways {
		d.hosts = make(map[netip.Addr]bool, len(now.Hosts))
		for _, a := range now.Hosts {
			d.hosts[a] = true
		}
	}
	return d
}

// addOthers adds the addresses in only one of two sorted lists.
func addOthers(to map[netip.Addr]bool, a, b []netip.Addr) {
	for len(a) > 0 && len(b) > 0 {
		switch a[0].Compare(b[0]) {
		case -1:
			to[a[0]], a = true, a[1:]
		case 1:
			to[b[0]], b = true, b[1:]
		default:
			same := a[0]
			for ; len(a) > 0 && a[0] == same; a = a[1:] { // gateways share next hops
			}
			for ; len(b) > 0 && b[0] == same; b = b[1:] {
			}
		}
	}
	for _, rest := range slices.Concat(a, b) {
		to[rest] = true
	}
}

// concerns reports whether a Service is affected.
func (d difference) concerns(s *serviceState) bool {
	switch {
	case d.all, s.near && d.nodes, d.nodePorts && s.HasNodePorts(), s.WantsAny(d.addrs):
		return true
	case s.spare.refused && len(d.addrs) > 0: // see service.Resolved.Choose
		return true
	case d.gateways:
		return s.ExternalLocal || s.WantsAny(d.hosts)
	}
	return false
}
