package nbsync

import (
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync/owned"
)

// The weight of a frontend estimates the work of ovn-northd for it, like that of a Service in lib/desired/service.
const (
	balancerWeight = 50
	frontendWeight = 60 // in a group
	singleWeight   = 10
	// lightWeight is the weight of new frontends below which a unit is never limited.
	lightWeight = 500
)

// A Limited is the result of Limit.
type Limited struct {
	Held   map[nb.Unit]int // units with frontends left out, and the weight of these
	Weight int             // of the new frontends that stay
}

// Heavy reports whether Limit may limit a unit with these rows.
func Heavy(rows []nb.Row) bool { return weightOf(rows, presence{}) > lightWeight }

// Ports counts the ports and load balancers in the database, and the ports that want adds: after the database was
// emptied, these are everything.
func (s *Sync) Ports(want map[nb.Unit][]nb.Row) int {
	c, err := s.cache()
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, have := c.Table(nbdb.LogicalSwitchPortTable).Len()+c.Table(nbdb.LoadBalancerTable).Len(), s.refreshed(c)
	for _, rows := range want {
		for _, r := range rows {
			if _, ok := have.find(r.Table, r.ID); !ok && r.Table == nbdb.LogicalSwitchPortTable {
				n++
			}
		}
	}
	return n
}

// Limit takes new frontends out of want, those beyond a weight: from the last units of order first. Rows of other
// kinds, and changes of frontends in the database, stay. Of a new unit with load balancers only, all rows go.
func (s *Sync) Limit(want map[nb.Unit][]nb.Row, order []nb.Unit, room int) Limited {
	out := Limited{Held: map[nb.Unit]int{}}
	c, err := s.cache()
	if err != nil {
		return out // Apply returns the reason
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := limiter{s.refreshed(c), room, &out}
	for _, u := range order {
		rows := want[u]
		if !Heavy(rows) {
			continue
		}
		if present := l.present(u, rows); weightOf(rows, present) > lightWeight {
			if want[u] = l.limit(u, rows, present); want[u] == nil {
				delete(want, u)
			}
		}
	}
	return out
}

// A limiter limits units one after the other.
type limiter struct {
	have *rowIndex
	room int
	out  *Limited
}

// A presence has the frontends of a unit in the database.
type presence struct {
	have  *rowIndex
	of    map[string]map[string]string // by ID of their load balancer
	at    map[location][]string        // IDs of the load balancers in a column
	moved map[string]bool              // those to be taken out of a load balancer
}

// present returns the frontends of a unit in the database. rows are the desired rows.
func (l limiter) present(u nb.Unit, rows []nb.Row) presence {
	p := presence{l.have, map[string]map[string]string{}, map[location][]string{}, map[string]bool{}}
	stay := map[string]map[string]string{}
	for _, r := range rows {
		if lb, ok := r.Model.(*nbdb.LoadBalancer); ok {
			stay[r.ID] = lb.Vips
		}
	}
	for _, r := range l.have.owned[u] {
		lb, ok := l.have.row(r.table, r.uuid).(*nbdb.LoadBalancer)
		if !ok {
			continue
		}
		_, id := owned.OwnerOf(lb)
		p.of[id] = lb.Vips
		for _, at := range l.have.referrers[r.uuid] {
			p.at[at] = append(p.at[at], id)
		}
		for vip := range lb.Vips {
			if _, ok := stay[id][vip]; !ok {
				p.moved[vip] = true
			}
		}
	}
	return p
}

// known returns a function that reports whether a frontend is not new to a load balancer: it has it, or another one
// has it in the same switch, router or group, or loses it. Nobody waits for a frontend that moves.
func (p presence) known(r nb.Row) func(vip string) bool {
	ids := map[string]bool{r.ID: true}
	for _, ref := range r.In {
		if len(p.at) == 0 {
			break
		}
		uuid, _ := p.have.find(ref.Table, ref.ID)
		for _, id := range p.at[location{ref.Table, uuid, ref.Column}] {
			ids[id] = true
		}
	}
	return func(vip string) bool {
		if p.moved[vip] {
			return true
		}
		for id := range ids {
			if _, ok := p.of[id][vip]; ok {
				return true
			}
		}
		return false
	}
}

// weightOf is the weight of the frontends of rows without those present.
func weightOf(rows []nb.Row, present presence) (sum int) {
	for _, r := range rows {
		lb, ok := r.Model.(*nbdb.LoadBalancer)
		if !ok {
			continue
		}
		before, known := sum, present.known(r)
		for vip, endpoints := range lb.Vips {
			if !known(vip) {
				sum += frontend(r, endpoints)
			}
		}
		if sum > before {
			sum += balancerWeight
		}
	}
	return sum
}

func frontend(r nb.Row, endpoints string) int {
	n := strings.Count(endpoints, ",") + 1
	if inGroup(r) {
		return frontendWeight + n
	}
	return singleWeight + n
}

func inGroup(r nb.Row) bool {
	return slices.ContainsFunc(r.In, func(ref nb.Ref) bool { return ref.Table == nbdb.LoadBalancerGroupTable })
}

// limit returns the rows of a unit without the new frontends that have no room, nil to hold them all.
func (l *limiter) limit(u nb.Unit, rows []nb.Row, present presence) []nb.Row {
	if l.room <= 0 && !l.have.owns(u) && !slices.ContainsFunc(rows, func(r nb.Row) bool { return r.Table == nbdb.LogicalSwitchPortTable }) {
		l.out.Held[u] = weightOf(rows, presence{})
		return nil
	}
	out := make([]nb.Row, 0, len(rows))
	for _, r := range rows {
		if lb, ok := r.Model.(*nbdb.LoadBalancer); ok {
			fewer := *lb
			fewer.Vips = l.fitting(u, r, lb, present.known(r))
			if len(fewer.Vips) == 0 && len(lb.Vips) > 0 {
				continue
			}
			r.Model = &fewer
		}
		out = append(out, r)
	}
	return out
}

// fitting returns the frontends of a load balancer that are known or have room.
func (l *limiter) fitting(u nb.Unit, r nb.Row, lb *nbdb.LoadBalancer, known func(vip string) bool) map[string]string {
	vips := map[string]string{}
	for _, vip := range slices.Sorted(maps.Keys(lb.Vips)) {
		endpoints := lb.Vips[vip]
		w := frontend(r, endpoints)
		if !known(vip) && l.room <= 0 {
			l.out.Held[u] += w
			continue
		}
		vips[vip] = endpoints
		if known(vip) {
			continue
		}
		if len(vips) == 1 {
			w += balancerWeight
		}
		l.room -= w
		l.out.Weight += w
	}
	return vips
}
