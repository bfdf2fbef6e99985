package nbsync

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

const (
	// maxUnits bounds the units of a transaction creating rows. During a large transaction ovsdb-server answers no
	// client.
	maxUnits = 500
	// maxOperations bounds a transaction with changes of existing rows. Thousands of ports added to one port group
	// are one operation.
	maxOperations = 2000
	// maxBytes bounds the values of a transaction, unless one unit has more, or existing rows change other than load
	// balancers and rules that allow.
	maxBytes = 4 << 20
)

// A stage is a transaction: units, in the order for dividing it if the database refuses it.
type stage struct {
	units []nb.Unit
	plan  *Plan // nil: not made yet
}

// stages divides the desired rows of units into transactions.
//
// The rows of a network policy belong to many units: groups, pods, rules. Between two transactions no pod may be
// more open than both before and afterwards. So all existing rows change in one transaction, with any number of
// units. New rows without other referrers come after it, such as new pods; each pod joins its groups in the
// transaction creating its port.
//
// Units with load balancers only come last, in the order of Compare, whether they have rows or not: the Services of
// one author must not delay the pods of others.
//
// If the first part alone is too large, as after the database was emptied, it is ordered: first units that only add
// rows, in the order of Compare; then units that delete some.
func (s *Sync) stages(want map[nb.Unit][]nb.Row) []stage {
	compare := s.Compare
	if compare == nil {
		compare = cmp.Compare[nb.Unit]
	}
	units := slices.SortedFunc(maps.Keys(want), compare)
	if len(units) <= maxUnits {
		plan, err := s.Plan(part(want, units))
		if err != nil || plan.size() <= maxBytes {
			return []stage{{units, plan}}
		}
	}
	units, independent := s.independent(want, units)
	there, arrivals := s.arrivals(want, units)
	out, late := s.changes(want, there)
	return slices.Concat(out, chunks(want, arrivals), chunks(want, late), chunks(want, independent))
}

// independent separates units with rows of the independent tables from all others.
func (s *Sync) independent(want map[nb.Unit][]nb.Row, units []nb.Unit) (others, independent []nb.Unit) {
	return s.separate(units, func(have *rowIndex, u nb.Unit) bool {
		var is, other bool
		see := func(table string) {
			is = is || have.tables[table].Independent
			other = other || !have.tables[table].Independent && table != nbdb.ACLTable
		}
		for _, r := range want[u] {
			see(r.Table)
		}
		for _, r := range have.owned[u] {
			see(r.table)
		}
		return is && !other
	})
}

// arrivals separates units without rows whose desired rows have no other referrers of ours from all others.
func (s *Sync) arrivals(want map[nb.Unit][]nb.Row, units []nb.Unit) (others, arrivals []nb.Unit) {
	return s.separate(units, func(have *rowIndex, u nb.Unit) bool {
		return !have.owns(u) && !slices.ContainsFunc(want[u], func(r nb.Row) bool { return !have.tables[r.Table].Leaf })
	})
}

// separate divides units in two, by the present rows, and keeps their order.
func (s *Sync) separate(units []nb.Unit, match func(have *rowIndex, u nb.Unit) bool) (others, matching []nb.Unit) {
	c, err := s.cache()
	if err != nil {
		return units, nil // the next attempt returns the reason
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.refreshed(c)
	for _, u := range units {
		if match(have, u) {
			matching = append(matching, u)
		} else {
			others = append(others, u)
		}
	}
	return others, matching
}

// changes divides all units except for arrivals. Units to be written again, after all others, are late.
func (s *Sync) changes(want map[nb.Unit][]nb.Row, units []nb.Unit) (out []stage, late []nb.Unit) {
	if len(units) == 0 {
		return nil, nil
	}
	plan, err := s.Plan(part(want, units))
	if err != nil || len(plan.ops) <= maxOperations && plan.size() <= maxBytes {
		return []stage{{units, plan}}, nil
	}
	if len(plan.ops) <= maxOperations {
		first, late := s.closed(want, units, plan)
		return []stage{first}, late
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
	return append(chunks(want, adding), chunks(want, taking)...), nil
}

// closed divides a plan of existing rows with too many bytes, so that no pod is more open in between than afterwards:
// rows that allow, new or changed, come later, those of the largest units first, and until then none is in force. The
// rest stays one transaction.
func (s *Sync) closed(want map[nb.Unit][]nb.Row, units []nb.Unit, plan *Plan) (first stage, late []nb.Unit) {
	changed := map[tableID]bool{}
	for _, c := range plan.Changes {
		changed[tableID{c.Table, c.ID}] = true
	}
	moves := func(r nb.Row) bool { return changed[tableID{r.Table, r.ID}] }
	sizes := map[nb.Unit]int{}
	for _, u := range units {
		if slices.ContainsFunc(want[u], closes) {
			continue
		}
		for _, r := range want[u] {
			if moves(r) {
				sizes[u] += sizeOf(reflect.ValueOf(r.Model))
			}
		}
	}
	large := slices.SortedFunc(maps.Keys(sizes), func(a, b nb.Unit) int { return cmp.Or(sizes[b]-sizes[a], cmp.Compare(a, b)) })
	less, size := part(want, units), plan.size()
	for _, u := range large {
		if size <= maxBytes {
			break
		}
		less[u] = slices.DeleteFunc(slices.Clone(want[u]), moves)
		size -= sizes[u]
		late = append(late, u)
	}
	if fewer, err := s.Plan(less); err == nil {
		return stage{units, fewer}, late
	}
	return stage{units, plan}, nil
}

// closes reports whether a row may do anything but allow packets.
func closes(r nb.Row) bool {
	m, ok := r.Model.(*nbdb.ACL)
	return !ok || m.Action == nbdb.ACLActionDrop || m.Action == nbdb.ACLActionReject
}

// chunks divides units into transactions of at most maxUnits, and of maxOperations rows and maxBytes unless one unit
// has more.
func chunks(want map[nb.Unit][]nb.Row, units []nb.Unit) (out []stage) {
	rows, bytes := 0, 0
	for _, u := range units {
		last, size := len(out)-1, 0
		for _, r := range want[u] {
			size += sizeOf(reflect.ValueOf(r.Model)) + len(r.In)*len(`["uuid","00000000-0000-0000-0000-000000000000"],`)
		}
		rows, bytes = rows+len(want[u]), bytes+size
		if last < 0 || len(out[last].units) == maxUnits || rows > maxOperations || bytes > maxBytes {
			out, rows, bytes, last = append(out, stage{}), len(want[u]), size, last+1
		}
		out[last].units = append(out[last].units, u)
	}
	return out
}

// size estimates the bytes of the transaction's values.
func (p *Plan) size() (sum int) {
	for _, op := range p.ops {
		sum += sizeOf(reflect.ValueOf(op.Row)) + sizeOf(reflect.ValueOf(op.Mutations))
	}
	return sum
}

// sizeOf estimates the bytes of a value in JSON.
func sizeOf(v reflect.Value) (sum int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len() + len(`"",`)
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			sum = sizeOf(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			sum += sizeOf(v.Index(i))
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			sum += len(`[],`) + sizeOf(entries.Key()) + sizeOf(entries.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			sum += sizeOf(v.Field(i))
		}
	}
	return sum
}

// part returns the desired rows of some units.
func part(want map[nb.Unit][]nb.Row, units []nb.Unit) map[nb.Unit][]nb.Row {
	out := make(map[nb.Unit][]nb.Row, len(units))
	for _, u := range units {
		out[u] = want[u]
	}
	return out
}
