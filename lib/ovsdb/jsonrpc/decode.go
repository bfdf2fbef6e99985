package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

const (
	// part is the number of rows of a reply passed on at once.
	part = 1000
	// longest is the length up to which equal strings are shared: UUIDs, keys, names.
	longest = 64
	// mostSeen is the number of shared strings kept after a message.
	mostSeen = 1 << 12
)

// A decoder reads messages of a server (RFC 7047, section 4) as they arrive. Only a part of a reply with all rows
// is in memory at any time, and equal strings share memory.
type decoder struct {
	json *jsontext.Decoder
	take func(ovsdb.TableUpdates2) error
	seen map[string]any
	err  error // the first; nothing is read after it
}

func newDecoder(r io.Reader, take func(ovsdb.TableUpdates2) error) *decoder {
	return &decoder{json: jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), take: take, seen: map[string]any{}}
}

// A message is a request or a reply.
type message struct {
	method  string                  // of a request
	id      jsontext.Value          // nil or null: none
	params  []jsontext.Value        // of a request, without rows
	results []ovsdb.OperationResult // of a transaction
	refused string                  // the error of a reply, as JSON
}

// message reads one message. It passes on rows of updates and replies before it returns.
func (d *decoder) message() (m message, err error) {
	d.enter('{')
	for d.more() {
		switch d.text() {
		case "method":
			m.method = d.text()
		case "id":
			m.id = d.raw()
		case "params":
			m.params = d.params()
		case "result":
			m.results = d.result()
		case "error":
			if v := d.raw(); v.Kind() != 'n' {
				m.refused = string(v)
			}
		default:
			d.raw()
		}
	}
	if len(d.seen) > mostSeen {
		d.seen = map[string]any{}
	}
	return m, d.err
}

// params reads the parameters of a request. An object is an update: the changes of one transaction, passed on as a
// whole.
func (d *decoder) params() (params []jsontext.Value) {
	d.enter('[')
	for d.more() {
		if d.json.PeekKind() == '{' {
			d.updates(0)
			continue
		}
		params = append(params, d.raw())
	}
	return params
}

// result reads the result of a transaction, or all rows of a new monitor.
func (d *decoder) result() (results []ovsdb.OperationResult) {
	switch d.json.PeekKind() {
	case '{':
		d.updates(part)
		return nil
	case '[':
		d.enter('[')
		for d.more() {
			results = append(results, d.operationResult())
		}
		return results
	}
	d.raw() // null, next to an error
	return nil
}

// operationResult reads the result of one operation: null if it was not reached.
func (d *decoder) operationResult() (r ovsdb.OperationResult) {
	if d.json.PeekKind() != '{' {
		d.raw()
		return r
	}
	d.enter('{')
	for d.more() {
		switch d.text() {
		case "count":
			n, _ := d.value().(float64)
			r.Count = int(n)
		case "uuid":
			r.UUID, _ = d.value().(ovsdb.UUID)
		case "error":
			r.Error, _ = d.value().(string)
		case "details":
			r.Details, _ = d.value().(string)
		case "rows":
			d.enter('[')
			for d.more() {
				r.Rows = append(r.Rows, *d.row())
			}
		default:
			d.raw()
		}
	}
	return r
}

// updates reads rows by table and UUID (ovsdb-server(7), update2), and passes them to take: most at a time, or 0
// for all at once.
func (d *decoder) updates(most int) {
	all, n := ovsdb.TableUpdates2{}, 0
	take := func() {
		if d.err == nil && n > 0 {
			d.err = d.take(all)
		}
		all, n = ovsdb.TableUpdates2{}, 0
	}
	d.enter('{')
	for d.more() {
		table := d.text()
		d.enter('{')
		for d.more() {
			if all[table] == nil {
				all[table] = ovsdb.TableUpdate2{}
			}
			all[table][d.text()] = d.rowUpdate()
			if n++; n == most {
				take()
			}
		}
	}
	take()
}

// rowUpdate reads the change of a row. A deletion has no content.
func (d *decoder) rowUpdate() *ovsdb.RowUpdate2 {
	u := &ovsdb.RowUpdate2{}
	d.enter('{')
	for d.more() {
		switch d.text() {
		case "initial":
			u.Initial = d.row()
		case "insert":
			u.Insert = d.row()
		case "modify":
			u.Modify = d.row()
		default:
			d.raw()
		}
	}
	return u
}

// row reads a row or its changed columns.
func (d *decoder) row() *ovsdb.Row {
	row := ovsdb.Row{}
	d.enter('{')
	for d.more() {
		row[d.text()] = d.value()
	}
	return &row
}

// value reads the value of a column (RFC 7047, section 5.1) as libovsdb represents it.
func (d *decoder) value() any {
	switch d.json.PeekKind() {
	case '"':
		return d.boxed()
	case '[':
		return d.tagged()
	case 't', 'f':
		return d.token().Bool()
	case '0':
		n, err := d.token().Float()
		d.fail(err)
		return n
	}
	d.raw()
	return nil
}

// tagged reads a UUID, a set or a map.
func (d *decoder) tagged() (v any) {
	d.enter('[')
	switch tag := d.text(); tag {
	case "uuid", "named-uuid":
		v = ovsdb.UUID{GoUUID: d.text()}
	case "set":
		set := []any{}
		d.enter('[')
		for d.more() {
			set = append(set, d.value())
		}
		v = ovsdb.OvsSet{GoSet: set}
	case "map":
		pairs := map[any]any{}
		d.enter('[')
		for d.more() {
			d.enter('[')
			k := d.value()
			pairs[k] = d.value()
			d.leave()
		}
		v = ovsdb.OvsMap{GoMap: pairs}
	default:
		d.fail(fmt.Errorf("a value of the unknown kind %q", tag))
	}
	d.leave()
	return v
}

// boxed reads a string.
func (d *decoder) boxed() any {
	if d.err != nil {
		return ""
	}
	v, err := d.json.ReadValue()
	d.fail(err)
	if d.err == nil && v.Kind() != '"' {
		d.fail(fmt.Errorf("%s where a string should be", v.Kind()))
	}
	if d.err != nil {
		return ""
	}
	text := v[1 : len(v)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		unquoted, err := jsontext.AppendUnquote(nil, v)
		d.fail(err)
		return string(unquoted)
	}
	if len(text) > longest {
		return string(text)
	}
	if known, ok := d.seen[string(text)]; ok {
		return known
	}
	s := string(text)
	d.seen[s] = s
	return d.seen[s]
}

func (d *decoder) text() string { return d.boxed().(string) }

// raw reads any value.
func (d *decoder) raw() jsontext.Value {
	if d.err != nil {
		return nil
	}
	v, err := d.json.ReadValue()
	d.fail(err)
	return v.Clone()
}

func (d *decoder) token() jsontext.Token {
	if d.err != nil {
		return jsontext.Null
	}
	t, err := d.json.ReadToken()
	d.fail(err)
	return t
}

// enter reads the start of an object or an array.
func (d *decoder) enter(start jsontext.Kind) {
	if t := d.token(); d.err == nil && t.Kind() != start {
		d.fail(fmt.Errorf("%s where %s should be", t.Kind(), start))
	}
}

// more reports whether the object or array has more, and reads its end if not.
func (d *decoder) more() bool {
	if d.err != nil {
		return false
	}
	switch d.json.PeekKind() {
	case '}', ']', jsontext.KindInvalid:
		d.token()
		return false
	}
	return true
}

// leave reads the end of an array.
func (d *decoder) leave() {
	if d.more() {
		d.fail(errors.New("a value has too many parts"))
	}
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}
