package owned

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Differ reports whether our columns and keys of two states of a row differ.
func (t *Table) Differ(a, b model.Model) bool {
	for _, columns := range [][]string{t.Columns, t.Has, t.Maps} {
		for _, c := range columns {
			before, after := ColumnOf(a, c), ColumnOf(b, c)
			if c == "external_ids" && t.Once != nil {
				if !equalBut(t.Once, before.Interface().(map[string]string), after.Interface().(map[string]string)) {
					return true
				}
			} else if !Equal(before, after) {
				return true
			}
		}
	}
	return false
}

// equalBut reports whether two maps are equal but for keys with some prefixes.
func equalBut(prefixes []string, a, b map[string]string) bool {
	compared := func(key string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	}
	for k, v := range a {
		if other, ok := b[k]; (!ok || other != v) && compared(k) {
			return false
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok && compared(k) {
			return false
		}
	}
	return true
}

// Equal compares the values of a column; the order of a set does not matter.
func Equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Int:
		return a.Int() == b.Int()
	}
	// pointers to values, because an interface would copy these
	as, ok := a.Addr().Interface().(*[]string)
	if !ok {
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
	bs := b.Addr().Interface().(*[]string)
	return slices.Equal(*as, *bs) || len(*as) == len(*bs) && slices.Equal(slices.Sorted(slices.Values(*as)), slices.Sorted(slices.Values(*bs)))
}

// ours reports whether a key of a map column is ours.
func ours(key string, prefixes []string) bool {
	if strings.HasPrefix(key, ourKeys) {
		return true
	}
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

// Without returns m without the keys with one of the prefixes.
func Without(m map[string]string, prefixes []string) map[string]string {
	if len(prefixes) == 0 {
		return m
	}
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(k, _ string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(k, p) })
	})
	return m
}

// Mutations are the mutations to give our keys of a map column the wanted values, and their description.
func Mutations(column string, have, want map[string]string, prefixes []string) (ms []ovsdb.Mutation, detail []string) {
	if maps.Equal(have, want) {
		return nil, nil
	}
	var drop []any
	set := map[any]any{}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if w, ok := want[k]; ours(k, prefixes) && (!ok || w != have[k]) {
			drop = append(drop, k)
			if !ok {
				detail = append(detail, fmt.Sprintf("%s:%s: %q → none", column, k, have[k]))
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if h, ok := have[k]; !ok || h != want[k] {
			set[k] = want[k]
			detail = append(detail, fmt.Sprintf("%s:%s: %q → %q", column, k, h, want[k]))
		}
	}
	if len(drop) > 0 {
		ms = append(ms, *ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, ovsdb.OvsSet{GoSet: drop}))
	}
	if len(set) > 0 {
		ms = append(ms, *ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, ovsdb.OvsMap{GoMap: set}))
	}
	return ms, detail
}

// Refs returns the UUIDs in a set column. m may be nil.
func Refs(m model.Model, column string) []string {
	if m == nil {
		return nil
	}
	uuids, _ := ColumnOf(m, column).Interface().([]string)
	return uuids
}

// ColumnOf returns the field of a model for a column.
func ColumnOf(m model.Model, column string) reflect.Value {
	v := reflect.ValueOf(m).Elem()
	i, ok := fields(v.Type())[column]
	if !ok {
		panic("owned: " + v.Type().Name() + " has no column " + column)
	}
	return v.Field(i)
}

// fieldsOf caches the results of fields, by type.
var fieldsOf sync.Map

// fields returns the index of the field of each column in a model's type.
func fields(t reflect.Type) map[string]int {
	if known, ok := fieldsOf.Load(t); ok {
		return known.(map[string]int)
	}
	index := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		index[t.Field(i).Tag.Get("ovsdb")] = i
	}
	fieldsOf.Store(t, index)
	return index
}
