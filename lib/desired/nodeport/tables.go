package nodeport

import (
	"net/netip"
	"reflect"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ruleset"
)

// Tables are the parts of Services in a table of nftables, kept to make rules again after a change: only changed Services
// cost something. The zero value has none. One goroutine calls the methods, and Table of the rules.
type Tables struct {
	host   Host
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
	if t.family != r.Family || !reflect.DeepEqual(t.host, r.Host) {
		*t = Tables{host: r.Host, family: r.Family}
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
	return &t
}
