package nbsync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/mapper"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync/owned"
)

// A Plan is one transaction to give units their desired rows.
type Plan struct {
	Changes       []Change              // sorted by unit
	Failed        map[nb.Unit]error     // units left out, with the reasons
	units         []nb.Unit             // all others, sorted
	drainingRows  []string              // UUIDs of rows emptied a moment ago
	emptied       []string              // UUIDs of rows emptied by the transaction
	drainingUnits []nb.Unit             // units with a row in drainingRows or emptied to delete
	ops           []ovsdb.Operation     // the transaction
	inserts       map[tableID]string    // the named UUID of each row to create
	created       map[string]int        // by named UUID: index in ops of the row's insert
	mutates       map[location]*members // references to add and to take away
	have          *rowIndex
	mapper        mapper.Mapper
	model         model.DatabaseModel
}

// fail returns the reason for each of the units that fails because the transaction failed: the others have their rows. Without a
// plan this is not known, and all fail.
func (p *Plan) fail(err error, units []nb.Unit) map[nb.Unit]error {
	failed := map[nb.Unit]error{}
	if p != nil {
		maps.Copy(failed, p.Failed)
		for _, c := range p.Changes {
			failed[c.Unit] = err
		}
		units = p.drainingUnits
	}
	for _, u := range units {
		failed[u] = err
	}
	return failed
}

type members struct{ add, remove []string }

// newPlan compares the desired rows of units with the cache. drainingRows are the rows emptied a moment ago.
func newPlan(c *cache.TableCache, have *rowIndex, want map[nb.Unit][]nb.Row, drainingRows []string) (*Plan, error) {
	p := &Plan{
		Failed: map[nb.Unit]error{}, drainingRows: drainingRows, inserts: map[tableID]string{}, created: map[string]int{}, mutates: map[location]*members{},
		have: have, model: c.DatabaseModel(), mapper: c.Mapper(),
	}
	found := p.match(want)
	for _, u := range p.units {
		if err := p.addUnit(u, want[u], found); err != nil {
			return nil, fmt.Errorf("planning %s: %w", u, err)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(p.mutates), compareLocations) {
		p.addMutation(at, p.mutates[at])
	}
	return p, nil
}

type tableID struct{ table, id string }

// match finds the existing row for each desired row: "" if it must be created. Units with impossible rows go to
// Failed, and with them the units depending on their new rows.
func (p *Plan) match(want map[nb.Unit][]nb.Row) map[tableID]string {
	found, of := map[tableID]string{}, map[tableID]nb.Unit{}
	for _, u := range slices.Sorted(maps.Keys(want)) {
		for _, r := range want[u] {
			if first, twice := of[tableID{r.Table, r.ID}]; twice { // the database refuses two rows to create with one name
				p.Failed[u] = fmt.Errorf("%s %q is wanted twice, first by %s", p.have.tables[r.Table].Kind, r.ID, first)
				continue
			}
			of[tableID{r.Table, r.ID}] = u
			uuid, ok := p.have.find(r.Table, r.ID)
			if !ok {
				var adopt bool
				parents := p.parents(r, found)
				if uuid, adopt = p.have.unownedFor(r, parents); uuid != "" && !adopt {
					p.Failed[u] = fmt.Errorf("%s %q exists and is not ours: rename or delete it", p.have.tables[r.Table].Kind, owned.NameOf(r.Model))
				}
			}
			found[tableID{r.Table, r.ID}] = uuid
		}
	}
	forgetNew := func(u nb.Unit) { // its rows will not be created
		for _, r := range want[u] {
			if id := (tableID{r.Table, r.ID}); found[id] == "" && of[id] == u {
				delete(found, id)
			}
		}
	}
	for u := range p.Failed {
		forgetNew(u)
	}
	for more := true; more; {
		more = false
		for u, rows := range want {
			if p.Failed[u] != nil {
				continue
			}
			if missing := p.missing(rows, found); missing != "" {
				p.Failed[u], more = fmt.Errorf("waiting for %s", missing), true
				forgetNew(u)
			}
		}
	}
	for u := range want {
		if p.Failed[u] == nil {
			p.units = append(p.units, u)
		}
	}
	slices.Sort(p.units)
	return found
}

// parents are the existing locations of r.
func (p *Plan) parents(r nb.Row, found map[tableID]string) []location {
	var out []location
	for _, ref := range r.In {
		if uuid := p.resolve(ref, found); !strings.HasPrefix(uuid, pendingPrefix) {
			out = append(out, location{ref.Table, uuid, ref.Column})
		}
	}
	return out
}

// missing names a referenced row that neither exists nor is created.
func (p *Plan) missing(rows []nb.Row, found map[tableID]string) string {
	for _, r := range rows {
		for _, list := range [][]nb.Ref{r.In, r.Has} {
			for _, ref := range list {
				if _, ok := p.have.find(ref.Table, ref.ID); ok {
					continue
				}
				if _, ok := found[tableID{ref.Table, ref.ID}]; !ok {
					return p.have.tables[ref.Table].Kind + " " + ref.ID
				}
			}
		}
	}
	return ""
}

// addUnit adds the operations for one unit.
func (p *Plan) addUnit(u nb.Unit, want []nb.Row, found map[tableID]string) error {
	keep := map[string]bool{} // by UUID
	for _, r := range want {
		uuid := found[tableID{r.Table, r.ID}]
		keep[uuid] = true
		p.removeTwins(u, r, uuid, found)
		var detail []string
		var err error
		if uuid == "" {
			uuid, err = p.insert(u, r)
		} else {
			detail, err = p.update(u, r, uuid)
		}
		if err != nil {
			return err
		}
		only, created := len(detail) == 0, p.inserts[tableID{r.Table, r.ID}] != ""
		switch detail = append(detail, p.place(r, uuid, found)...); {
		case created:
			row := r
			p.Changes = append(p.Changes, Change{Unit: u, Action: Create, Table: r.Table, ID: r.ID, row: &row})
		case len(detail) > 0:
			p.Changes = append(p.Changes, Change{Unit: u, Action: Update, Table: r.Table, ID: r.ID, detail: detail, moved: only})
		}
	}
	var gone []rowOf
	for _, r := range p.have.owned[u] {
		if !keep[r.uuid] {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(gone, func(a, b rowOf) int {
		return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.uuid, b.uuid))
	})
	for _, r := range gone {
		p.remove(u, r.table, r.uuid)
	}
	return nil
}

// insert adds the operation to create r and returns the row's named UUID.
func (p *Plan) insert(u nb.Unit, r nb.Row) (string, error) {
	id := fmt.Sprintf("new%d", len(p.inserts))
	p.inserts[tableID{r.Table, r.ID}] = id
	row, err := p.row(owned.Model(r, u))
	if err != nil {
		return "", err
	}
	p.created[id] = len(p.ops)
	p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: r.Table, UUIDName: id, UUID: p.permanentUUID(r), Row: row})
	return id, nil
}

// permanentUUID returns the UUID of a row that has the same one in each database, or "". ovn-northd keeps the rows of
// a datapath in the Southbound database, and ovn-controller its zones of conntrack, as long as the datapath has its
// UUID. From OVN 25.03 on, ovn-northd also replaces a row of Chassis_Template_Var with another UUID (sync_template_vars
// in northd/northd.c), at which ovn-controller aborts (see ErrDraining). "uuid" in an insert is an extension of
// ovsdb-server, see ovsdb-server(7).
func (p *Plan) permanentUUID(r nb.Row) string {
	if !p.have.tables[r.Table].Permanent {
		return ""
	}
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte("ovn-k8s:"+r.Table+"/"+r.ID)).String()
	if p.have.row(r.Table, id) != nil { // somebody removed its owner
		return ""
	}
	return id
}

// row converts columns of m, or all columns with a value, to OVSDB's notation.
func (p *Plan) row(m model.Model, fields ...any) (ovsdb.Row, error) {
	info, err := p.model.NewModelInfo(m)
	if err != nil {
		return nil, err
	}
	row, err := p.mapper.NewRow(info, fields...)
	if err != nil {
		return nil, err
	}
	delete(row, "_uuid")
	return row, nil
}

// update adds the operations to change the row with the given UUID to r, and describes the changes.
func (p *Plan) update(u nb.Unit, r nb.Row, uuid string) (detail []string, err error) {
	have, t := p.have.row(r.Table, uuid), p.have.tables[r.Table]
	r = owned.WithKept(r, have)
	var fields []any
	for _, c := range t.Columns {
		h, w := owned.ColumnOf(have, c), owned.ColumnOf(r.Model, c)
		if !owned.Equal(h, w) {
			fields = append(fields, w.Addr().Interface())
			detail = append(detail, fmt.Sprintf("%s: %s → %s", c, nb.Format(h.Interface()), nb.Format(w.Interface())))
		}
	}
	if len(fields) > 0 {
		row, err := p.row(r.Model, fields...)
		if err != nil {
			return nil, err
		}
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: r.Table, Row: row, Where: whereUUID(uuid)})
	}
	var mutations []ovsdb.Mutation
	for _, c := range t.Maps {
		h, w := owned.ColumnOf(have, c).Interface().(map[string]string), owned.ColumnOf(r.Model, c).Interface().(map[string]string)
		if c == "external_ids" {
			if owned.Carries(h, w, u, r.ID) {
				continue
			}
			w = owned.WithOwner(w, u, r.ID)
			if owner, _ := owned.OwnerOf(have); owner == u {
				h, w = owned.Without(h, r.OnlyNew), owned.Without(w, r.OnlyNew)
			}
		}
		m, d := owned.Mutations(c, h, w, t.Keys[c])
		mutations, detail = append(mutations, m...), append(detail, d...)
	}
	if len(mutations) > 0 {
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationMutate, Table: r.Table, Mutations: mutations, Where: whereUUID(uuid)})
	}
	return detail, nil
}

// place puts a row into its parents' columns, takes it out of all others, and fills its columns with references to
// other rows. It describes the changes.
func (p *Plan) place(r nb.Row, uuid string, found map[tableID]string) (detail []string) {
	want := make([]location, len(r.In))
	for i, ref := range r.In {
		want[i] = location{ref.Table, p.resolve(ref, found), ref.Column}
	}
	have := p.have.referrers[uuid]
	had, wanted := memberOf(have), memberOf(want)
	for _, at := range want {
		if !had(at) {
			p.addTo(at, uuid)
			detail = append(detail, "put into "+p.describe(at))
		}
	}
	if len(r.In) > 0 {
		for _, at := range have {
			if !wanted(at) && !p.foreign(at) {
				p.takeFrom(at, uuid)
				detail = append(detail, "taken out of "+p.describe(at))
			}
		}
	}
	return append(detail, p.fill(r, uuid, found)...)
}

// fewLocations is the number of locations up to which a search through a list is cheaper than a map.
const fewLocations = 16

// memberOf returns a function that reports whether a location is in a list. The rows on the switches of all nodes have
// thousands.
func memberOf(list []location) func(location) bool {
	if len(list) <= fewLocations {
		return func(at location) bool { return slices.Contains(list, at) }
	}
	set := make(map[location]bool, len(list))
	for _, at := range list {
		set[at] = true
	}
	return func(at location) bool { return set[at] }
}

// foreign reports whether another client manages the members of a column.
func (p *Plan) foreign(at location) bool {
	owner, _ := owned.OwnerOf(p.have.row(at.table, at.uuid))
	return p.have.tables[at.table].Weak[at.column] != "" && owner == ""
}

// fill makes the columns of r.Has refer to those rows, and to no other rows of ours.
func (p *Plan) fill(r nb.Row, uuid string, found map[tableID]string) (detail []string) {
	t := p.have.tables[r.Table]
	for _, column := range t.Has {
		at, want := location{r.Table, uuid, column}, map[string]bool{}
		have := p.children(at)
		for _, ref := range r.Has {
			if ref.Column != column {
				continue
			}
			child := p.resolve(ref, found)
			want[child] = true
			if !have[child] {
				p.addTo(at, child)
				detail = append(detail, fmt.Sprintf("%s: add %s", column, ref.ID))
			}
		}
		for child := range have {
			m := p.have.row(t.HasOf, child)
			if want[child] || m == nil {
				continue
			}
			if owner, id := owned.OwnerOf(m); owner != "" {
				p.takeFrom(at, child)
				detail = append(detail, fmt.Sprintf("%s: remove %s", column, id))
			}
		}
	}
	return detail
}

// children are the UUIDs in a column.
func (p *Plan) children(at location) map[string]bool {
	have := map[string]bool{}
	if m := p.have.row(at.table, at.uuid); m != nil {
		for _, child := range owned.Refs(m, at.column) {
			have[child] = true
		}
	}
	return have
}

// resolve returns the UUID, or the named UUID, of the row of ref.
func (p *Plan) resolve(ref nb.Ref, found map[tableID]string) string {
	if uuid := p.inserts[tableID{ref.Table, ref.ID}]; uuid != "" {
		return uuid
	}
	if uuid := found[tableID{ref.Table, ref.ID}]; uuid != "" {
		return uuid
	}
	if uuid, ok := p.have.find(ref.Table, ref.ID); ok {
		return uuid
	}
	return pending(ref)
}

// pending stands for a row created by a later unit of the plan.
func pending(ref nb.Ref) string { return pendingPrefix + ref.Table + "/" + ref.ID }

const pendingPrefix = "pending/"

// removeTwins removes the other duplicates of an adopted row.
func (p *Plan) removeTwins(u nb.Unit, r nb.Row, uuid string, found map[tableID]string) {
	if uuid == "" || !p.have.tables[r.Table].Nameless {
		return
	}
	if owner, _ := owned.OwnerOf(p.have.row(r.Table, uuid)); owner != "" {
		return
	}
	for _, duplicate := range p.have.duplicates(r, p.parents(r, found)) {
		if duplicate != uuid {
			p.remove(u, r.Table, duplicate)
		}
	}
}

// remove takes a row out of all columns with a reference to it. The database itself deletes unreferenced rows,
// except in root tables.
func (p *Plan) remove(u nb.Unit, table, uuid string) {
	_, id := owned.OwnerOf(p.have.row(table, uuid))
	if id == "" {
		id = owned.NameOf(p.have.row(table, uuid))
	}
	if p.drain(u, table, uuid, id) {
		return
	}
	for _, at := range p.have.referrers[uuid] {
		p.takeFrom(at, uuid)
	}
	if p.have.tables[table].Root {
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: table, Where: whereUUID(uuid)})
	}
	p.Changes = append(p.Changes, Change{Unit: u, Action: Delete, Table: table, ID: id})
}

// drain empties a row before its deletion, and reports whether the row has to stay for now.
func (p *Plan) drain(u nb.Unit, table, uuid, id string) bool {
	t := p.have.tables[table]
	if t.Drain == "" {
		return false
	}
	have, _ := owned.ColumnOf(p.have.row(table, uuid), t.Drain).Interface().(map[string]string)
	mutations, detail := owned.Mutations(t.Drain, have, nil, t.Keys[t.Drain])
	if len(mutations) == 0 && !slices.Contains(p.drainingRows, uuid) {
		return false
	}
	p.drainingUnits = append(p.drainingUnits, u)
	if len(mutations) > 0 {
		p.emptied = append(p.emptied, uuid)
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Mutations: mutations, Where: whereUUID(uuid)})
		p.Changes = append(p.Changes, Change{Unit: u, Action: Update, Table: table, ID: id, detail: detail})
	}
	return true
}

// whereUUID selects one row.
func whereUUID(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}
