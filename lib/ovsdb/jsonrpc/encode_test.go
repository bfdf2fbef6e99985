package jsonrpc

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nb/nbdb"
)

// Any transaction is encoded as by libovsdb's types, except for the order of maps and for escapes.
func TestTransactionsAreEncodedAsByLibovsdb(t *testing.T) {
	r := &drawer{rand.New(rand.NewPCG(1, 2))}
	for i := range 3000 {
		ops := make([]ovsdb.Operation, r.IntN(4))
		for j := range ops {
			ops[j] = r.operation()
		}
		want, err := json.Marshal(request{"transact", append([]any{}, ovsdb.NewTransactArgs("OVN_Northbound", ops...)...), i})
		if err != nil {
			t.Fatal(err)
		}
		got, err := transact(i, "OVN_Northbound", ops)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, want), parsed(t, got)); diff != "" {
			t.Fatalf("%+v (-libovsdb +own):\n%s", ops, diff)
		}
	}
}

// A value without an encoding is an error and not sent.
func TestWhatCannotBeEncodedIsAnError(t *testing.T) {
	bad := ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "ACL", Row: ovsdb.Row{"name": func() {}}}
	if text, err := transact(1, "OVN_Northbound", []ovsdb.Operation{bad}); err == nil {
		t.Errorf("it is encoded as %s", text)
	}
}

// parsed is JSON as values, with the pairs of maps in one order.
func parsed(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return sortPairs(v)
}

func sortPairs(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = sortPairs(v[k])
		}
	case []any:
		for i := range v {
			v[i] = sortPairs(v[i])
		}
		if len(v) != 2 || v[0] != "map" {
			break
		}
		if pairs, ok := v[1].([]any); ok {
			slices.SortFunc(pairs, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
	return v
}

// A drawer draws operations.
type drawer struct{ *rand.Rand }

func (r *drawer) operation() ovsdb.Operation {
	yes, now, text := r.IntN(2) == 0, r.IntN(100), r.string()
	op := ovsdb.Operation{Op: []string{"insert", "update", "mutate", "wait", "comment", "select", "delete", "assert"}[r.IntN(8)]}
	for _, set := range []func(){
		func() { op.Table = "ACL" }, func() { op.Row = r.row() }, func() { op.Rows = []ovsdb.Row{r.row(), r.row()} },
		func() { op.Columns = []string{"name", r.string()} }, func() { op.Timeout = &now }, func() { op.Until = "==" }, func() { op.Comment = &text },
		func() { op.UUIDName = "new1" },
		func() {
			op.Where = []ovsdb.Condition{{Column: "_uuid", Function: ovsdb.ConditionEqual, Value: r.value()}, {Column: "name", Function: ovsdb.ConditionIncludes, Value: r.value()}}
		},
		func() {
			op.Mutations = []ovsdb.Mutation{{Column: "ports", Mutator: ovsdb.MutateOperationInsert, Value: r.value()}}
		},
	} {
		if r.IntN(3) > 0 {
			set()
		}
	}
	for _, set := range []func(){func() { op.Durable = &yes }, func() { op.Lock = &text }, func() { op.UUID = r.string() }} {
		if r.IntN(20) == 0 {
			set()
		}
	}
	return op
}

func (r *drawer) row() ovsdb.Row {
	out := ovsdb.Row{}
	for range r.IntN(5) {
		out[r.string()] = r.value()
	}
	return out
}

func (r *drawer) value() any {
	switch r.IntN(4) {
	case 0:
		set := ovsdb.OvsSet{}
		for range r.IntN(4) {
			set.GoSet = append(set.GoSet, r.atom())
		}
		return set
	case 1:
		m := ovsdb.OvsMap{GoMap: map[any]any{}}
		for range r.IntN(4) {
			m.GoMap[r.string()] = r.atom()
		}
		return m
	}
	return r.atom()
}

func (r *drawer) atom() any {
	return []any{
		r.string(), r.Int() - r.Int(), r.Float64(), r.IntN(2) == 0, nbdb.ACLAction("allow"), ovsdb.UUID{GoUUID: "new1"},
		ovsdb.UUID{GoUUID: "0123abcd-4567-89ef-0123-456789abcdef"}, ovsdb.UUID{GoUUID: "0123ABCD-4567-89ef-0123-456789abcdef"},
		ovsdb.UUID{GoUUID: "0123abcd-4567-89ef-0123+456789abcdef"},
	}[r.IntN(9)]
}

func (r *drawer) string() string {
	return []string{
		"", "web", `a "quoted" \ one`, "ip4.src == 10.0.0.1 && tcp.src < 5", "line\nbreak\ttab\x00\x1f\x7f", "größe ✓ \u2028 𝄞", "no UTF-8: \xff\xc3", strings.Repeat("x", 70),
	}[r.IntN(8)]
}

// BenchmarkEncode compares both encodings of a transaction that creates 500 ports.
func BenchmarkEncode(b *testing.B) {
	var ops []ovsdb.Operation
	for i := range 500 {
		addrs := ovsdb.OvsSet{GoSet: []any{fmt.Sprintf("0a:58:0a:80:01:03 10.128.%d.%d", i/250, i%250)}}
		ids := ovsdb.OvsMap{GoMap: map[any]any{"ovn-k8s-owner": fmt.Sprint("pod/default/web-", i), "ovn-k8s-id": fmt.Sprint("default_web-", i), "namespace": "default", "pod": "true"}}
		row := ovsdb.Row{"name": fmt.Sprint("default_web-", i), "addresses": addrs, "port_security": addrs, "external_ids": ids, "options": ovsdb.OvsMap{GoMap: map[any]any{"requested-chassis": "n1"}}}
		ops = append(ops, ovsdb.Operation{Op: "insert", Table: "Logical_Switch_Port", UUIDName: fmt.Sprint("new", i), Row: row})
	}
	b.Run("libovsdb", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(request{"transact", ovsdb.NewTransactArgs("OVN_Northbound", ops...), 1}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("own", func(b *testing.B) {
		for b.Loop() {
			if _, err := transact(1, "OVN_Northbound", ops); err != nil {
				b.Fatal(err)
			}
		}
	})
}
