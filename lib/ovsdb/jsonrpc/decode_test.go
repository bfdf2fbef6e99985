package jsonrpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// sample are rows with all kinds of values in updates.
const sample = `{"T":{
	"11111111-1111-4111-8111-111111111111":{"initial":{"s":"a","q":"a \"quoted\" \u00e9\n","i":7,"r":0.5,"b":true,
		"u":["uuid","22222222-2222-4222-8222-222222222222"],"e":["set",[]],"set":["set",["x","y"]],
		"us":["set",[["uuid","22222222-2222-4222-8222-222222222222"],["uuid","33333333-3333-4333-8333-333333333333"]]],
		"m":["map",[["k","v"],["n",1]]],"em":["map",[]]}},
	"44444444-4444-4444-8444-444444444444":{"initial":{}},
	"55555555-5555-4555-8555-555555555555":{"modify":{"s":"b"}},
	"66666666-6666-4666-8666-666666666666":{"insert":{"s":"a"}},
	"77777777-7777-4777-8777-777777777777":{"delete":null}}}`

func decode(t *testing.T, text string) (all []ovsdb.TableUpdates2, m message) {
	t.Helper()
	d := newDecoder(strings.NewReader(text), func(u ovsdb.TableUpdates2) error { all = append(all, u); return nil })
	m, err := d.message()
	if err != nil {
		t.Fatal(err)
	}
	return all, m
}

// Rows are decoded to the same values as by libovsdb, in updates and in replies, for any order of a message's
// parts.
func TestRowsAreDecodedAsLibovsdbDoes(t *testing.T) {
	var want ovsdb.TableUpdates2
	if err := json.Unmarshal([]byte(sample), &want); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"id":null,"method":"update2","params":["rows",` + sample + `]}`,
		`{"params":["rows",` + sample + `],"method":"update2","id":null}`,
		`{"result":` + sample + `,"error":null,"id":1}`,
	} {
		got, _ := decode(t, text)
		if diff := cmp.Diff([]ovsdb.TableUpdates2{want}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// The rows of a reply come in parts, the rows of an update at once.
func TestRepliesComeInParts(t *testing.T) {
	var rows []string
	for i := range 2*part + 1 {
		rows = append(rows, fmt.Sprintf(`"%d":{"initial":{}}`, i))
	}
	all := `{"T":{` + strings.Join(rows, ",") + `}}`
	if got, _ := decode(t, `{"id":1,"result":`+all+`,"error":null}`); len(got) != 3 || len(got[2]["T"]) != 1 {
		t.Errorf("a reply comes in %d parts", len(got))
	}
	if got, _ := decode(t, `{"id":null,"method":"update2","params":["rows",`+all+`]}`); len(got) != 1 {
		t.Errorf("an update comes in %d parts", len(got))
	}
}

// Equal strings take memory once.
func TestEqualStringsAreOne(t *testing.T) {
	got, _ := decode(t, `{"result":{"T":{"a":{"initial":{"k":"value"}},"b":{"initial":{"k":"value"}}}}}`)
	rows := got[0]["T"]
	a, b := (*rows["a"].Initial)["k"].(string), (*rows["b"].Initial)["k"].(string)
	if a != "value" || unsafe.StringData(a) != unsafe.StringData(b) {
		t.Errorf("%q and %q are two", a, b)
	}
}

// Results of transactions are decoded to the same values as by libovsdb.
func TestResultsAreDecodedAsLibovsdbDoes(t *testing.T) {
	const text = `[{"count":2},{"uuid":["uuid","22222222-2222-4222-8222-222222222222"]},{},{"rows":[{"name":"a"}]},{"error":"timed out","details":"d","new":[1]},null]`
	var want []ovsdb.OperationResult
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	_, m := decode(t, `{"error":null,"result":`+text+`,"id":7}`)
	if diff := cmp.Diff(want, m.results); diff != "" || string(m.id) != "7" || m.refused != "" {
		t.Errorf("id %s, error %q (-want +got)\n%s", m.id, m.refused, diff)
	}
	if _, m := decode(t, `{"error":"unknown database","result":null,"id":8}`); m.refused != `"unknown database"` {
		t.Errorf("the error is %s", m.refused)
	}
}

// An invalid message ends the connection.
func TestBadMessages(t *testing.T) {
	for _, text := range []string{"", "[", `{"id":`, `{"result":{"T":7}}`, `{"result":{"T":{"a":{"initial":{"k":["bag",[]]}}}}}`, `{"result":{"T":{"a":{"initial":{"k":["uuid","a","b"]}}}}}`} {
		d := newDecoder(strings.NewReader(text), func(ovsdb.TableUpdates2) error { return nil })
		if m, err := d.message(); err == nil {
			t.Errorf("%q is %+v", text, m)
		}
	}
}
