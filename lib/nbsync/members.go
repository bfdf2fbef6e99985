package nbsync

import (
	"cmp"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nbsync/owned"
)

// addTo has the transaction put a row into a column, takeFrom take it out.
func (p *Plan) addTo(at location, uuid string) { m := p.mutate(at); m.add = append(m.add, uuid) }

func (p *Plan) takeFrom(at location, uuid string) {
	m := p.mutate(at)
	m.remove = append(m.remove, uuid)
}

func (p *Plan) mutate(at location) *members {
	m := p.mutates[at]
	if m == nil {
		m = &members{}
		p.mutates[at] = m
	}
	return m
}

// addMutation adds the operation to change the references in one column. A new row gets them in its insert: some
// columns must not be empty.
func (p *Plan) addMutation(at location, m *members) {
	if i, ok := p.created[p.named(at.uuid)]; ok {
		have, _ := p.ops[i].Row[at.column].(ovsdb.OvsSet)
		p.ops[i].Row[at.column] = ovsdb.OvsSet{GoSet: append(have.GoSet, p.uuidSet(m.add).GoSet...)}
		return
	}
	var ms []ovsdb.Mutation
	if len(m.remove) > 0 {
		ms = append(ms, *ovsdb.NewMutation(at.column, ovsdb.MutateOperationDelete, p.uuidSet(m.remove)))
	}
	if len(m.add) > 0 {
		ms = append(ms, *ovsdb.NewMutation(at.column, ovsdb.MutateOperationInsert, p.uuidSet(m.add)))
	}
	p.ops = append(p.ops, ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: at.table, Mutations: ms,
		Where: whereUUID(p.named(at.uuid)),
	})
}

func (p *Plan) uuidSet(uuids []string) ovsdb.OvsSet {
	set := make([]any, len(uuids))
	for i, u := range uuids {
		set[i] = ovsdb.UUID{GoUUID: p.named(u)}
	}
	return ovsdb.OvsSet{GoSet: set}
}

// named replaces the placeholder of a pending row by its named UUID, known once all units are planned.
func (p *Plan) named(uuid string) string {
	if rest, ok := strings.CutPrefix(uuid, pendingPrefix); ok {
		table, id, _ := strings.Cut(rest, "/")
		return p.inserts[tableID{table, id}]
	}
	return uuid
}

// describe names the row of a column, for people.
func (p *Plan) describe(at location) string {
	if m := p.have.row(at.table, at.uuid); m != nil {
		return owned.NameOf(m)
	}
	if rest, ok := strings.CutPrefix(at.uuid, pendingPrefix); ok {
		_, id, _ := strings.Cut(rest, "/")
		return "new " + id
	}
	name, _ := p.ops[p.created[at.uuid]].Row["name"].(string)
	return "new " + cmp.Or(name, p.have.tables[at.table].Kind)
}

func compareLocations(a, b location) int {
	return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.column, b.column), strings.Compare(a.uuid, b.uuid))
}
