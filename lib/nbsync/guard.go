package nbsync

import (
	"maps"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nbsync/owned"
)

// A Guard is a condition of a transaction: a wait operation with timeout 0 (RFC 7047, section 5.2.6).
type Guard struct {
	last bool // checked after the changes
	op   func(*Plan) (ovsdb.Operation, error)
}

// guard adds guards before and after the operations.
func (p *Plan) guard(guards []Guard) error {
	var before []ovsdb.Operation
	for _, g := range guards {
		op, err := g.op(p)
		if err != nil {
			return err
		}
		if g.last {
			p.ops = append(p.ops, op)
		} else {
			before = append(before, op)
		}
	}
	p.ops = append(before, p.ops...)
	return nil
}

// Unchanged requires a column to have the value in row.
func Unchanged(table string, row model.Model, column string) Guard {
	return Guard{op: func(p *Plan) (ovsdb.Operation, error) {
		values, err := p.row(row, owned.ColumnOf(row, column).Addr().Interface())
		return wait(table, ovsdb.WaitConditionEqual, whereUUID(owned.ColumnOf(row, "_uuid").String()), values), err
	}}
}

// Absent requires that no row has the name.
func Absent(table, name string) Guard {
	return Guard{op: func(*Plan) (ovsdb.Operation, error) {
		return wait(table, ovsdb.WaitConditionNotEqual, whereName(name), ovsdb.Row{"name": name}), nil
	}}
}

// Includes requires a map column of a row to have keys with these values.
func Includes(table, uuid, column string, keys map[string]string) Guard {
	return Guard{op: func(*Plan) (ovsdb.Operation, error) { return includes(table, uuid, column, keys), nil }}
}

// Excludes requires a map column of a row to have no key with this value.
func Excludes(table, uuid, column, key, value string) Guard {
	return Guard{op: func(*Plan) (ovsdb.Operation, error) {
		where := append(whereUUID(uuid), ovsdb.NewCondition(column, ovsdb.ConditionExcludes, ovsMap(map[string]string{key: value})))
		return wait(table, ovsdb.WaitConditionEqual, where, ovsdb.Row{"_uuid": ovsdb.UUID{GoUUID: uuid}}), nil
	}}
}

// Alone requires, after the changes, the named row to be the only one with value in a set column.
func Alone(table, name, column, value string) Guard {
	return Guard{last: true, op: func(*Plan) (ovsdb.Operation, error) {
		where := ovsdb.NewCondition(column, ovsdb.ConditionIncludes, ovsdb.OvsSet{GoSet: []any{value}})
		return wait(table, ovsdb.WaitConditionEqual, []ovsdb.Condition{where}, ovsdb.Row{"name": name}), nil
	}}
}

// Keys are keys of a map column of a row to replace if they still have their old values.
type Keys struct {
	Table, UUID, Column string
	Old, New            map[string]string
}

// ops replace the keys. An insert of a present key does nothing (RFC 7047, section 5.1), and then the wait fails.
func (k Keys) ops() []ovsdb.Operation {
	if maps.Equal(k.Old, k.New) {
		return nil
	}
	var mutations []ovsdb.Mutation
	if len(k.Old) > 0 {
		mutations = append(mutations, *ovsdb.NewMutation(k.Column, ovsdb.MutateOperationDelete, ovsMap(k.Old)))
	}
	if len(k.New) > 0 {
		mutations = append(mutations, *ovsdb.NewMutation(k.Column, ovsdb.MutateOperationInsert, ovsMap(k.New)))
	}
	mutate := ovsdb.Operation{Op: ovsdb.OperationMutate, Table: k.Table, Where: whereUUID(k.UUID), Mutations: mutations}
	return []ovsdb.Operation{mutate, includes(k.Table, k.UUID, k.Column, k.New)}
}

func includes(table, uuid, column string, keys map[string]string) ovsdb.Operation {
	where := append(whereUUID(uuid), ovsdb.NewCondition(column, ovsdb.ConditionIncludes, ovsMap(keys)))
	return wait(table, ovsdb.WaitConditionEqual, where, ovsdb.Row{"_uuid": ovsdb.UUID{GoUUID: uuid}})
}

// wait fails unless the rows selected by where are (or are not) one row with these columns.
func wait(table string, until ovsdb.WaitCondition, where []ovsdb.Condition, row ovsdb.Row) ovsdb.Operation {
	now, columns := 0, []string{}
	for c := range row {
		columns = append(columns, c)
	}
	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Timeout: &now, Until: string(until), Where: where, Columns: columns, Rows: []ovsdb.Row{row},
	}
}

func whereName(name string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}
}

func ovsMap(m map[string]string) ovsdb.OvsMap {
	out := make(map[any]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return ovsdb.OvsMap{GoMap: out}
}
