package nbsync

import (
	"reflect"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A snapshot is what the cache holds when a plan is made, read once. Looking
// rows up one by one would copy each of them, and a switch's whole list of
// ports for each of its ports.
type snapshot struct {
	cache   *cache.TableCache
	tables  map[string]*table
	rows    map[string]map[string]model.Model // by table and UUID; read only
	ids     map[string]map[string]string      // by table and ID of ours: the UUID
	parents map[string]map[string][]location  // by table and UUID: where it is referred to

	strangers map[string]map[string]string // by table and name: the UUID of a row that is not ours
}

// A location is one set column of one row.
type location struct{ table, uuid, column string }

func newSnapshot(c *cache.TableCache, tables map[string]*table) *snapshot {
	return &snapshot{
		cache: c, tables: tables,
		rows: map[string]map[string]model.Model{}, ids: map[string]map[string]string{}, parents: map[string]map[string][]location{},
		strangers: map[string]map[string]string{},
	}
}

// table returns all rows of a table by UUID.
func (s *snapshot) table(name string) map[string]model.Model {
	rows, ok := s.rows[name]
	if !ok {
		if t := s.cache.Table(name); t != nil {
			rows = t.RowsShallow()
		}
		s.rows[name] = rows
	}
	return rows
}

// find returns the UUID of our row with the given ID.
func (s *snapshot) find(table, id string) (string, bool) {
	ids, ok := s.ids[table]
	if !ok {
		ids = map[string]string{}
		for uuid, m := range s.table(table) {
			if u, id := ownerOf(m); u != "" {
				ids[id] = uuid
			}
		}
		s.ids[table] = ids
	}
	uuid, ok := ids[id]
	return uuid, ok
}

// refersTo lists the places that refer to a row.
func (s *snapshot) refersTo(table, uuid string) []location {
	index, ok := s.parents[table]
	if !ok {
		index = map[string][]location{}
		for _, p := range s.tables[table].parents {
			for parent, m := range s.table(p.table) {
				for _, child := range refs(m, p.column) {
					index[child] = append(index[child], location{p.table, parent, p.column})
				}
			}
		}
		s.parents[table] = index
	}
	return index[uuid]
}

// refs returns the UUIDs in a set column.
func refs(m model.Model, column string) []string {
	uuids, _ := columnOf(m, column).Interface().([]string)
	return uuids
}

func columnOf(m model.Model, column string) reflect.Value {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("ovsdb") == column {
			return v.Field(i)
		}
	}
	panic("nbsync: " + v.Type().Name() + " has no column " + column)
}

// stranger returns the UUID of a row that is nobody's of ours and stands where
// want should be: one with the same name, or the one that want may take over.
// It reports whether want may.
func (s *snapshot) stranger(want nb.Row) (uuid string, adopt bool) {
	byName, ok := s.strangers[want.Table]
	if !ok {
		byName = map[string]string{}
		for uuid, m := range s.table(want.Table) {
			if owner, _ := ownerOf(m); owner == "" {
				byName[nameOf(m)] = uuid
			}
		}
		s.strangers[want.Table] = byName
	}
	fits := s.tables[want.Table].fits
	if uuid = byName[nameOf(want.Model)]; uuid == "" && want.Table == nbdb.LogicalRouterTable {
		for _, other := range byName { // the cluster router may have any name
			if fits(s.table(want.Table)[other], want.Model) {
				uuid = other
			}
		}
	}
	return uuid, uuid != "" && want.Adopt && fits(s.table(want.Table)[uuid], want.Model)
}
