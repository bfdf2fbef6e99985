package nodeport

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ruleset"
)

// Tables are the parts of Services in a table of nftables, kept to make rules again after a change: only changed Services
// cost something. The zero value has none. One goroutine calls the methods, and Table of the rules.
type Tables struct {
	host     Host
	family   netip.Addr
	services map[*service.Resolved]serviceTable
}

// A serviceTable is the part of one Service. It depends on the host and the frontends only: a Resolved does not change, and no
// other Service has a claim to the frontends.
type serviceTable struct {
	frontends []service.Frontend
	table     *ruleset.Table
}

// Rules returns the rules of one family, as NewRules does.
func (t *Tables) Rules(h Host, family netip.Addr, frontends []service.Frontend, pods []hostport.Pod) Rules {
	return Rules{Host: h, Family: family, HostPorts: hostport.Ports(family, frontends, pods), frontends: frontends, tables: t}
}

// parts returns the part of each Service with rules.
func (t *Tables) parts(r Rules) (all []*ruleset.Table) {
	if t.family != r.Family || !reflect.DeepEqual(t.host, r.Host) {
		*t = Tables{host: r.Host, family: r.Family}
	}
	now := make(map[*service.Resolved]serviceTable, len(t.services))
	for frontends := range byService(r.frontends) {
		if !slices.ContainsFunc(frontends, func(f service.Frontend) bool { return f.OfFamily(r.Family) }) {
			continue
		}
		s, known := t.services[frontends[0].Resolved]
		if !known || !slices.Equal(s.frontends, frontends) {
			s = serviceTable{slices.Clone(frontends), partOf(r.Host, r.Family, frontends)}
		}
		now[frontends[0].Resolved] = s
		if len(s.table.Chains)+len(s.table.Sets) > 0 {
			all = append(all, s.table)
		}
	}
	t.services = now
	return all
}

// byService returns the frontends of each Service.
func byService(frontends []service.Frontend) iter.Seq[[]service.Frontend] {
	return func(yield func([]service.Frontend) bool) {
		for len(frontends) > 0 {
			n := 1
			for n < len(frontends) && frontends[n].Resolved == frontends[0].Resolved {
				n++
			}
			if !yield(frontends[:n:n]) {
				return
			}
			frontends = frontends[n:]
		}
	}
}

// partOf renders the rules of one Service for nft(8).
func partOf(h Host, family netip.Addr, frontends []service.Frontend) *ruleset.Table {
	b := newTableBuilder(Rules{Host: h, Family: family})
	b.services(newServiceRules(h, family, frontends))
	t := b.table()
	return &t
}
