// Package nb represents desired rows of the Northbound database as values. The generated models of its tables are in
// nbdb.
package nb

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// A Unit owns rows: "cluster", "node/NAME", "pod/NAMESPACE/NAME". It is written into external_ids of each row
// (names.Owner).
type Unit string

// A Row is one desired row of the Northbound database.
type Row struct {
	// Table is the table's name in the OVN schema, as in "Logical_Switch_Port".
	Table string
	// ID is unique among our rows of the table. It is written into external_ids (names.ID).
	ID string
	// Model is a pointer to the table's model in nbdb. Only the columns and keys listed in lib/nbsync/owned are
	// compared and written. Columns with references to other rows are empty; see In and Has.
	Model model.Model
	// In lists set columns of other rows that must contain this row. The row is removed from the same column of all other
	// rows, except for weak references of unowned rows (lib/nbsync/owned).
	In []Ref
	// Has lists rows of ours that this row's own set columns must contain. A column is filled by In or by Has, never
	// by both.
	Has []Ref
	// Adopt permits taking over an existing row without an owner, if nbsync recognizes it as a match for this row.
	// Otherwise such a row with the same name is an error.
	Adopt bool
	// OnlyNew lists prefixes of keys of external_ids. They are written when the row is created or adopted, and not
	// compared afterwards.
	OnlyNew []string
	// Keeps lists columns of one string. A row that is adopted keeps its values in them, in external_ids (names.Kept), as
	// long as it lives.
	Keeps []string
}

// A Ref is a place in a set column with references: in Row.In, Table and ID are the row with the column; in Row.Has,
// they are the row that the column refers to.
type Ref struct{ Table, ID, Column string }

// String formats the row on one line: its table and ID, its non-empty columns
// in alphabetical order, and its references.
func (r Row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Table, r.ID)
	for _, c := range Columns(r.Model) {
		if !c.Value.IsZero() && c.Name != "_uuid" {
			fmt.Fprintf(&b, " %s=%s", c.Name, Format(c.Value.Interface()))
		}
	}
	for _, ref := range r.In {
		fmt.Fprintf(&b, " in=%s/%s.%s", ref.Table, ref.ID, ref.Column)
	}
	for _, ref := range r.Has {
		fmt.Fprintf(&b, " %s=%s/%s", ref.Column, ref.Table, ref.ID)
	}
	return b.String()
}

// A Column is one column of a model.
type Column struct {
	Name  string        // as in the OVN schema
	Value reflect.Value // the model's field, settable
}

// Columns lists the columns of m, a pointer to a generated model, in alphabetical order.
func Columns(m model.Model) []Column {
	v := reflect.ValueOf(m).Elem()
	cols := make([]Column, v.NumField())
	for i := range cols {
		cols[i] = Column{v.Type().Field(i).Tag.Get("ovsdb"), v.Field(i)}
	}
	return cols
}

// Format formats the value of a column for people, as ovn-nbctl would: sets in
// brackets, maps in braces, both sorted.
func Format(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []string:
		return fmt.Sprintf("%q", slices.Sorted(slices.Values(v)))
	case map[string]string:
		var kv []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			kv = append(kv, fmt.Sprintf("%s=%q", k, v[k]))
		}
		return "{" + strings.Join(kv, ", ") + "}"
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && !v.IsNil() {
		return Format(v.Elem().Interface())
	}
	return fmt.Sprint(value)
}
