package nodeport

import (
	"net/netip"
	"reflect"
	"slices"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ruleset"
)

// Tables are the parts of Services in a table of nftables, kept to make rules again after a change: only changed Services
// cost something. The zero value has none. One goroutine calls the methods, and Table of the rules.
type Tables struct {
	host   Host // without Nodes
	nodes  Nodes
	family netip.Addr
	// kept has the part of each Service. It depends on the host and the Service's frontends only: no other Service has a claim
	// to them.
	kept service.Kept[*ruleset.Table]
}

// Rules returns the rules of one family, as NewRules does.
func (t *Tables) Rules(h Host, family netip.Addr, frontends service.List, pods []hostport.Pod) Rules {
	return Rules{Host: h, Family: family, HostPorts: hostport.Ports(family, frontends, pods), frontends: frontends, tables: t}
}

// parts returns the part of each Service with rules.
func (t *Tables) parts(r Rules) (all []*ruleset.Table) {
	host := r.Host
	host.Nodes = nil
	if t.family != r.Family || !reflect.DeepEqual(t.host, host) {
		*t = Tables{host: host, nodes: r.Host.Nodes, family: r.Family}
	}
	if others := facts.OtherKeys(t.nodes, r.Host.Nodes, slices.Equal); len(others) > 0 {
		t.kept.Forget(func(f *service.Frontend) bool { return mayHaveNeighbours(f.Resolved, others) })
		t.nodes = r.Host.Nodes
	}
	for _, part := range t.kept.Of(r.frontends, func(of service.List) *ruleset.Table { return partOf(r.Host, r.Family, of) }) {
		if len(part.Chains)+len(part.Sets) > 0 {
			all = append(all, part)
		}
	}
	return all
}

// partOf renders the rules of one Service for nft(8).
func partOf(h Host, family netip.Addr, frontends service.List) *ruleset.Table {
	b := newTableBuilder(Rules{Host: h, Family: family})
	b.services(newServiceRules(h, family, frontends))
	t := b.table()
	t.Owner = "service " + frontends[0][0].Key.String()
	return &t
}
