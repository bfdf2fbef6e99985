package jsonrpc

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// An encoder writes the same transaction as libovsdb's types (RFC 7047, sections 4.1.3 and 5). These encode each
// value of each level separately, and copy it into the next level's text.
type encoder struct {
	text []byte
	err  error // the first
}

// transact encodes a request.
func transact(id int, database string, ops []ovsdb.Operation) ([]byte, error) {
	e := &encoder{text: make([]byte, 0, 256*len(ops))}
	e.add(`{"method":"transact","params":[`)
	e.string(database)
	for _, op := range ops {
		e.add(",")
		e.operation(op)
	}
	e.add(`],"id":`)
	e.text = append(strconv.AppendInt(e.text, int64(id), 10), '}')
	return e.text, e.err
}

func (e *encoder) add(text string) { e.text = append(e.text, text...) }

// string encodes a string. Bytes outside of UTF-8 become U+FFFD, as with encoding/json.
func (e *encoder) string(s string) { e.text, _ = jsontext.AppendQuote(e.text, s) }

// other encodes rare values.
func (e *encoder) other(v any) {
	text, err := json.Marshal(v)
	if e.text = append(e.text, text...); e.err == nil {
		e.err = err
	}
}

// list encodes an array.
func list[T any](e *encoder, values []T, each func(T)) {
	e.add("[")
	for i, v := range values {
		if i > 0 {
			e.add(",")
		}
		each(v)
	}
	e.add("]")
}

// operation encodes an operation with its members.
func (e *encoder) operation(op ovsdb.Operation) {
	if op.Op == ovsdb.OperationSelect || op.Durable != nil || op.Lock != nil || op.UUID != "" {
		e.other(op)
		return
	}
	e.add(`{"op":`)
	e.string(op.Op)
	e.member("table", op.Table)
	if len(op.Row) > 0 {
		e.add(`,"row":`)
		e.row(op.Row)
	}
	if len(op.Rows) > 0 {
		e.add(`,"rows":`)
		list(e, op.Rows, e.row)
	}
	if len(op.Columns) > 0 {
		e.add(`,"columns":`)
		list(e, op.Columns, e.string)
	}
	if len(op.Mutations) > 0 {
		e.add(`,"mutations":`)
		list(e, op.Mutations, func(m ovsdb.Mutation) { e.triple(m.Column, string(m.Mutator), m.Value) })
	}
	if op.Timeout != nil {
		e.add(`,"timeout":`)
		e.value(*op.Timeout)
	}
	if len(op.Where) > 0 {
		e.add(`,"where":`)
		list(e, op.Where, func(c ovsdb.Condition) { e.triple(c.Column, string(c.Function), c.Value) })
	}
	e.member("until", op.Until)
	if op.Comment != nil {
		e.add(`,"comment":`)
		e.string(*op.Comment)
	}
	e.member("uuid-name", op.UUIDName)
	e.add("}")
}

// member encodes a member of an operation, unless it is empty.
func (e *encoder) member(name, value string) {
	if value != "" {
		e.add(`,"` + name + `":`)
		e.string(value)
	}
}

// row encodes the columns of a row, sorted by name.
func (e *encoder) row(r ovsdb.Row) {
	e.add("{")
	for i, column := range slices.Sorted(maps.Keys(r)) {
		if i > 0 {
			e.add(",")
		}
		e.string(column)
		e.add(":")
		e.value(r[column])
	}
	e.add("}")
}

// triple encodes a mutation or condition.
func (e *encoder) triple(column, function string, value any) {
	e.add("[")
	e.string(column)
	e.add(",")
	e.string(function)
	e.add(",")
	e.value(value)
	e.add("]")
}

// value encodes the value of a column.
func (e *encoder) value(v any) {
	switch v := v.(type) {
	case string:
		e.string(v)
	case int:
		e.text = strconv.AppendInt(e.text, int64(v), 10)
	case bool:
		e.text = strconv.AppendBool(e.text, v)
	case ovsdb.UUID:
		e.uuid(v)
	case ovsdb.OvsSet:
		e.set(v.GoSet)
	case ovsdb.OvsMap:
		e.pairs(v.GoMap)
	default: // strings of enumerations have types of their own
		if r := reflect.ValueOf(v); r.Kind() == reflect.String {
			e.string(r.String())
			return
		}
		e.other(v)
	}
}

func (e *encoder) uuid(u ovsdb.UUID) {
	if isUUID(u.GoUUID) {
		e.add(`["uuid",`)
	} else {
		e.add(`["named-uuid",`)
	}
	e.string(u.GoUUID)
	e.add("]")
}

// set encodes a set. A set of one element is encoded as the element.
func (e *encoder) set(values []any) {
	if len(values) == 1 {
		e.value(values[0])
		return
	}
	e.add(`["set",`)
	list(e, values, e.value)
	e.add("]")
}

// pairs encodes a map.
func (e *encoder) pairs(m map[any]any) {
	e.add(`["map",[`)
	first := true
	for k, v := range m {
		if !first {
			e.add(",")
		}
		first = false
		e.add("[")
		e.value(k)
		e.add(",")
		e.value(v)
		e.add("]")
	}
	e.add("]]")
}

// isUUID reports whether s is a UUID of a database and not the name of a new row.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}
