// Package nb is the vocabulary of the Northbound database: what a row should
// be, said as a value. The generated models of its tables are in nbdb.
package nb

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// A Unit owns rows: "cluster", "node/NAME", "pod/NAMESPACE/NAME". It is
// written into external_ids of each of them (names.Owner).
type Unit string

// A Row is one row that should be in the Northbound database.
type Row struct {
	// Table is the table's name in the OVN schema, as in "Logical_Switch_Port".
	Table string
	// ID is unique among our rows of the table, and written into external_ids
	// (names.ID).
	ID string
	// Model is a pointer to the table's model in nbdb. Only the columns and
	// keys that nbsync.Owned names for the table are compared and written.
	// Columns that refer to other rows are left empty: see In and Has.
	Model model.Model
	// In names the set columns of other rows that this row belongs to. A row is
	// taken out of every other row's column that is named for its table in
	// nbsync.Owned.
	In []Ref
	// Has names rows that this row's own set columns refer to, as far as the
	// rows are ours. A column is filled by In or by Has, never by both.
	Has []Ref
	// Adopt allows to take over a row that nobody of ours owns and that fits, as
	// nbsync knows it for the row's table. Without it, a row of somebody else's
	// with the same name is an error.
	Adopt bool
	// First has the row created before rows that change in the same comparison, where a transaction cannot hold all.
	First bool
	// OnlyNew names keys of external_ids, by prefix, that are written when the
	// row is created or taken over, and are somebody else's from then on.
	OnlyNew []string
}

// A Ref is a place in a set column that refers to other rows: in Row.In the
// row that has the column, in Row.Has the row that the column refers to.
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

// Columns lists the columns of m, a pointer to a generated model, in the
// alphabetical order in which they are generated.
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
