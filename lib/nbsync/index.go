package nbsync

import (
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync/owned"
)

// A rowIndex finds rows of the cache by owner, ID and name, and the referrers of a row. It is updated before each
// plan: from the changed rows (update), or from all rows (refresh).
//
// The cache never changes a row, but replaces it. So a row with the same pointer is unchanged.
type rowIndex struct {
	cache  *cache.TableCache // the cache indexed
	tables map[string]*owned.Table
	of     map[string]*tableIndex
	owned  map[nb.Unit][]rowOf
	// referrers are the references to a row, by its UUID. UUIDs are unique in the database.
	referrers map[string][]location
	// most is the largest number of rows since the maps were made; shrunk reports whether they were made again
	// because few rows were left.
	most   int
	shrunk bool
	looked int // number of rows read, for tests
}

// A location is one set column of one row.
type location struct{ table, uuid, column string }

// A rowOf is a row owned by a unit.
type rowOf struct{ table, uuid string }

type tableIndex struct {
	rows map[string]model.Model // by UUID; read only
	ids  map[string]string      // UUID by ID of our rows
	// copied are the rows not shared with the cache, and deleted ones.
	copied map[string]bool
	// unowned are unowned rows, by name.
	unowned map[string][]string
}

func newRowIndex() *rowIndex {
	m := &rowIndex{tables: owned.Tables(), of: map[string]*tableIndex{}, owned: map[nb.Unit][]rowOf{}, referrers: map[string][]location{}}
	for name := range m.tables {
		m.of[name] = &tableIndex{rows: map[string]model.Model{}, ids: map[string]string{}, copied: map[string]bool{}, unowned: map[string][]string{}}
	}
	return m
}

// worthShrinking is the number of deleted rows worth making the maps again: a Go map never releases memory.
const worthShrinking = 1000

// update reads changed rows of the cache into m. It reports false if so many rows were deleted that all should be
// read instead.
func (m *rowIndex) update(changed map[rowOf]bool) bool {
	of := map[string][]string{}
	for at := range changed {
		if m.of[at.table] != nil {
			of[at.table] = append(of[at.table], at.uuid)
		}
	}
	for name, uuids := range of {
		m.updateTable(name, uuids)
	}
	total := 0
	for _, t := range m.of {
		total += len(t.rows)
	}
	m.most = max(m.most, total)
	return m.most <= worthShrinking || total >= m.most/4
}

// maxCopied bounds the rows of a table that are copies: one of so many. The cache gives one row as a copy, and its own
// rows only all together: to list a row costs a thirtieth of a copy. So 100 000 new pods, in transactions of maxUnits,
// cost a copy and maxCopied listed rows each, and not a list of all pods for each transaction.
const maxCopied = 16

// updateTable reads changed rows of a table.
func (m *rowIndex) updateTable(name string, uuids []string) {
	t, c := m.of[name], m.cache.Table(name)
	if (len(t.copied)+len(uuids))*maxCopied < c.Len() {
		m.looked += len(uuids)
		for _, uuid := range uuids {
			m.replace(name, uuid, t.rows[uuid], c.Row(uuid))
			t.copied[uuid] = true
		}
		return
	}
	now := c.RowsShallow()
	m.looked += len(now)
	for _, uuid := range uuids {
		m.replace(name, uuid, t.rows[uuid], now[uuid])
		delete(t.copied, uuid)
	}
	for uuid := range t.copied {
		m.replace(name, uuid, t.rows[uuid], now[uuid])
	}
	t.copied = map[string]bool{}
}

// refresh updates the index by reading every row of the cache.
func (m *rowIndex) refresh(c *cache.TableCache) {
	total := 0
	for name := range m.of {
		total += c.Table(name).Len()
	}
	if m.most > worthShrinking && total < m.most/4 {
		*m = *newRowIndex()
		m.shrunk = true
	}
	m.most = max(m.most, total)
	m.cache = c
	for name, t := range m.of {
		now := c.Table(name).RowsShallow()
		m.looked += len(now)
		t.copied = map[string]bool{}
		gone := len(t.rows)
		for uuid, row := range now {
			old, known := t.rows[uuid]
			if known {
				gone--
			}
			if old == row {
				continue
			}
			m.replace(name, uuid, old, row)
		}
		if gone == 0 {
			continue
		}
		for uuid, row := range t.rows {
			if now[uuid] == nil {
				m.replace(name, uuid, row, nil)
			}
		}
	}
}

// replace updates the index for a changed, added (old is nil) or deleted (row is nil) row.
func (m *rowIndex) replace(name, uuid string, old, row model.Model) {
	if old != nil {
		m.forget(name, uuid, old)
	}
	if row != nil {
		m.learn(name, uuid, row)
	}
	for _, column := range m.tables[name].Refs {
		at := location{name, uuid, column}
		gone, come := changes(owned.Refs(old, column), owned.Refs(row, column))
		for _, child := range gone {
			take(m.referrers, child, at)
		}
		for _, child := range come {
			m.referrers[child] = append(m.referrers[child], at)
		}
	}
}

// learn adds a row to the maps.
func (m *rowIndex) learn(name, uuid string, row model.Model) {
	t := m.of[name]
	t.rows[uuid] = row
	if owner, id := owned.OwnerOf(row); owner != "" {
		m.owned[owner] = append(m.owned[owner], rowOf{name, uuid})
		t.ids[id] = uuid
	} else {
		t.unowned[owned.NameOf(row)] = append(t.unowned[owned.NameOf(row)], uuid)
	}
}

// forget is the opposite of learn.
func (m *rowIndex) forget(name, uuid string, row model.Model) {
	t := m.of[name]
	delete(t.rows, uuid)
	if owner, id := owned.OwnerOf(row); owner == "" {
		take(t.unowned, owned.NameOf(row), uuid)
	} else {
		take(m.owned, owner, rowOf{name, uuid})
		if t.ids[id] == uuid {
			delete(t.ids, id)
		}
	}
}

// changes compares two sets. Usually only a few of many members changed, and the cache keeps the order of the
// others.
func changes(old, now []string) (gone, come []string) {
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	if len(old) == 0 || len(now) == 0 {
		return old, now
	}
	left := make(map[string]bool, len(old))
	for _, v := range old {
		left[v] = true
	}
	for _, v := range now {
		if !left[v] {
			come = append(come, v)
		}
		delete(left, v)
	}
	return slices.Collect(maps.Keys(left)), come
}

// take removes v from the list of key k.
func take[K, V comparable](lists map[K][]V, k K, v V) {
	list := lists[k]
	if i := slices.Index(list, v); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if lists[k] = list; len(list) == 0 {
		delete(lists, k)
	}
}

// row returns a row by its UUID, or nil.
func (m *rowIndex) row(table, uuid string) model.Model { return m.of[table].rows[uuid] }

// find returns the UUID of our row with the given ID.
func (m *rowIndex) find(table, id string) (string, bool) {
	uuid, ok := m.of[table].ids[id]
	return uuid, ok
}

// owns reports whether a unit has any rows.
func (m *rowIndex) owns(u nb.Unit) bool { return len(m.owned[u]) > 0 }

// unownedFor returns the UUID of an unowned row in the place of want: one with the same name, or one want may adopt.
// adopt reports whether want may adopt it. parents are the existing parent rows of want.
func (m *rowIndex) unownedFor(want nb.Row, parents []location) (uuid string, adopt bool) {
	t, adoptable := m.of[want.Table], m.tables[want.Table].Adoptable
	if m.tables[want.Table].Nameless {
		duplicates := m.duplicates(want, parents)
		return first(duplicates), len(duplicates) > 0
	}
	candidates := t.unowned[owned.NameOf(want.Model)]
	if len(candidates) == 0 && want.Table == nbdb.LogicalRouterTable {
		for _, others := range t.unowned { // the cluster router may have any name
			for _, other := range others {
				if adoptable(t.rows[other], want.Model) {
					candidates = append(candidates, other)
				}
			}
		}
	}
	if len(candidates) == 0 {
		return "", false
	}
	uuid = slices.Min(candidates)
	return uuid, want.Adopt && adoptable(t.rows[uuid], want.Model)
}

// duplicates lists the unowned duplicates of want in a nameless table: rows with the same content and the same parents.
// The suite of the Python era made several NAT rows for one subnet: one more with each run.
func (m *rowIndex) duplicates(want nb.Row, parents []location) []string {
	t := m.of[want.Table]
	var out []string
	for _, uuid := range t.unowned[owned.NameOf(want.Model)] {
		at := m.referrers[uuid]
		if want.Adopt && len(parents) > 0 && len(at) == len(parents) && m.tables[want.Table].Adoptable(t.rows[uuid], want.Model) &&
			!slices.ContainsFunc(parents, func(p location) bool { return !slices.Contains(at, p) }) {
			out = append(out, uuid)
		}
	}
	slices.Sort(out)
	return out
}

// first returns the first of a list, or "".
func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
