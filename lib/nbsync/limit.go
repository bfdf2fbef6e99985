package nbsync

import (
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
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
func Heavy(rows []nb.Row) bool { return weightOf(rows, nil) > lightWeight }

// Ports counts the ports and load balancers in the database.
func (s *Sync) Ports() int {
	c, err := s.cache()
	if err != nil {
		return 0
	}
	return c.Table(nbdb.LogicalSwitchPortTable).Len() + c.Table(nbdb.LoadBalancerTable).Len()
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
		if rows := want[u]; Heavy(rows) && weightOf(rows, l.present(u)) > lightWeight {
			if want[u] = l.limit(u, rows); want[u] == nil {
				delete(want, u)
			}
		}
	}
	return out
}

// A limiter limits units one after the other.
type limiter struct {
	have *mirror
	room int
	out  *Limited
}

// present are the frontends of a unit in the database. A frontend may move between its load balancers.
func (l limiter) present(u nb.Unit) map[string]bool {
	vips := map[string]bool{}
	for _, r := range l.have.owned[u] {
		if lb, ok := l.have.row(r.table, r.uuid).(*nbdb.LoadBalancer); ok {
			for vip := range lb.Vips {
				vips[vip] = true
			}
		}
	}
	return vips
}

// weightOf is the weight of the frontends of rows without those present.
func weightOf(rows []nb.Row, present map[string]bool) (sum int) {
	for _, r := range rows {
		lb, ok := r.Model.(*nbdb.LoadBalancer)
		if !ok {
			continue
		}
		before := sum
		for vip, endpoints := range lb.Vips {
			if !present[vip] {
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
func (l *limiter) limit(u nb.Unit, rows []nb.Row) []nb.Row {
	if l.room <= 0 && !l.have.owns(u) && !slices.ContainsFunc(rows, func(r nb.Row) bool { return r.Table == nbdb.LogicalSwitchPortTable }) {
		l.out.Held[u] = weightOf(rows, nil)
		return nil
	}
	present := l.present(u)
	out := make([]nb.Row, 0, len(rows))
	for _, r := range rows {
		if lb, ok := r.Model.(*nbdb.LoadBalancer); ok {
			fewer := *lb
			fewer.Vips = l.fitting(u, r, lb, present)
			if len(fewer.Vips) == 0 && len(lb.Vips) > 0 {
				continue
			}
			r.Model = &fewer
		}
		out = append(out, r)
	}
	return out
}

// fitting returns the frontends of a load balancer that are present or have room.
func (l *limiter) fitting(u nb.Unit, r nb.Row, lb *nbdb.LoadBalancer, present map[string]bool) map[string]string {
	vips := map[string]string{}
	for _, vip := range slices.Sorted(maps.Keys(lb.Vips)) {
		endpoints := lb.Vips[vip]
		w := frontend(r, endpoints)
		if !present[vip] && l.room <= 0 {
			l.out.Held[u] += w
			continue
		}
		vips[vip] = endpoints
		if present[vip] {
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
