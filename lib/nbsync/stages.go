package nbsync

import (
	"cmp"
	"maps"
	"slices"

	"ovn-k8s/lib/nb"
)

const (
	// maxUnits bounds the units of a transaction that creates rows, so that none
	// makes ovsdb-server deaf for long.
	maxUnits = 500
	// maxOperations bounds a transaction that changes what is there. Thousands of
	// ports that join a port group are one operation.
	maxOperations = 2000
)

// A stage is a transaction: units, in the order in which they are divided if the
// database refuses it.
type stage struct {
	units []nb.Unit
	plan  *Plan // nil: not made yet
}

// stages divides what units want into transactions.
//
// What a network policy means is spread over many units: groups, pods, rules.
// Between two transactions no pod may be more open than it was before and will
// be afterwards. So what is there changes in one transaction, however many
// units that concerns, and only then come new rows that nothing else needs, as
// new pods, which join their groups in the transaction that creates them. Rows that are First come in their order
// among what is there.
//
// If even the first part is too large, as where a database was emptied, it is
// ordered: units that only add rows, in the order of Compare; then units that delete some.
func (s *Sync) stages(want map[nb.Unit][]nb.Row) (out []stage) {
	compare := s.Compare
	if compare == nil {
		compare = cmp.Compare[nb.Unit]
	}
	units := slices.SortedFunc(maps.Keys(want), compare)
	if len(units) <= maxUnits {
		return []stage{{units: units}}
	}
	there, arrivals := s.arrivals(want, units)
	out = s.changes(want, there)
	return append(out, chunks(want, arrivals)...)
}

// arrivals tells units that have no rows yet, and want only such as no others of
// ours refer to, from all others.
func (s *Sync) arrivals(want map[nb.Unit][]nb.Row, units []nb.Unit) (others, arrivals []nb.Unit) {
	c, err := s.cache()
	if err != nil {
		return units, nil // whatever is tried will say why not
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.refreshed(c)
	for _, u := range units {
		if have.owns(u) || slices.ContainsFunc(want[u], func(r nb.Row) bool { return r.First || !have.tables[r.Table].leaf }) {
			others = append(others, u)
		} else {
			arrivals = append(arrivals, u)
		}
	}
	return others, arrivals
}

// changes divides units that are not arrivals.
func (s *Sync) changes(want map[nb.Unit][]nb.Row, units []nb.Unit) []stage {
	if len(units) == 0 {
		return nil
	}
	plan, err := s.Plan(part(want, units))
	if err != nil || len(plan.ops) <= maxOperations {
		return []stage{{units, plan}}
	}
	takes := map[nb.Unit]bool{}
	for _, c := range plan.Changes {
		if c.Action == Delete {
			takes[c.Unit] = true
		}
	}
	adding, taking := []nb.Unit{}, []nb.Unit{}
	for _, u := range units {
		if takes[u] {
			taking = append(taking, u)
		} else {
			adding = append(adding, u)
		}
	}
	return append(chunks(want, adding), chunks(want, taking)...)
}

// chunks divides units into transactions of at most maxUnits, and of maxOperations rows unless one unit has more.
func chunks(want map[nb.Unit][]nb.Row, units []nb.Unit) (out []stage) {
	rows := 0
	for _, u := range units {
		last := len(out) - 1
		if rows += len(want[u]); last < 0 || len(out[last].units) == maxUnits || rows > maxOperations {
			out, rows, last = append(out, stage{}), len(want[u]), last+1
		}
		out[last].units = append(out[last].units, u)
	}
	return out
}

// part is what some of the units want.
func part(want map[nb.Unit][]nb.Row, units []nb.Unit) map[nb.Unit][]nb.Row {
	out := make(map[nb.Unit][]nb.Row, len(units))
	for _, u := range units {
		out[u] = want[u]
	}
	return out
}
