package nbsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/ovntest"
)

// T6: an empty database gets all rows at the first try, in several transactions, and no pod before its ACLs.
func TestAnEmptyDatabaseIsFilledInOrder(t *testing.T) {
	c, db, s := open(t)
	s.Compare = desired.Compare
	w := desired.NewWorld()
	const nodes, pods = 600, 600
	numbers := make([]int, nodes)
	for i := range numbers {
		numbers[i] = i
	}
	w.Put(cluster(t, numbers...))
	w.Put(open80())
	for i := range pods {
		w.Put(newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%nodes)))
	}
	w.Allocate()
	before, err := c.NBRecords()
	if err != nil {
		t.Fatal(err)
	}
	if _, failed := s.Apply(t.Context(), rowsOf(w, w.Units())); len(failed) > 0 {
		t.Errorf("%d units failed at the first try, as %v", len(failed), failed)
	}
	records, err := c.NBRecords()
	if err != nil {
		t.Fatal(err)
	}
	ports := 0
	for _, r := range records[len(before):] {
		if strings.Contains(r.Comment, "northd") {
			continue
		}
		if ports += r.Rows[nbdb.LogicalSwitchPortTable]; ports > 2*nodes+1 && r.Rows[nbdb.ACLTable] > 0 {
			t.Errorf("a transaction after %d ports has %d ACLs", ports, r.Rows[nbdb.ACLTable])
		}
	}
	if n := db.Client().Cache().Table(nbdb.LogicalSwitchPortTable).Len(); n != 2*nodes+1+pods {
		t.Errorf("%d logical ports", n)
	}
}

// Section 6 of the findings: rebuilding an emptied database aborted ovn-controllers from OVN 25.03 on, because ovn-northd
// deleted and created their rows of variables. These keep their UUIDs in the Southbound database.
func TestVariablesSurviveAnEmptiedDatabase(t *testing.T) {
	c, _, s := open(t)
	want := map[nb.Unit][]nb.Row{"chassis/n0": {loadbalancer.VariablesRow("n0", map[string]string{names.VariablePrefix + "a": "1"})}}
	fill := func(s *nbsync.Sync) string {
		apply(t, s, want)
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
		rows, err := c.SBCtl("--columns=_uuid,chassis,variables", "list", nbdb.ChassisTemplateVarTable)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := fill(s)
	c.StopNorthd()
	if err := c.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	_, _, s = connect(t, c)
	apply(t, s, want)
	if err := c.StartNorthd(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, fill(s)); diff != "" || !strings.Contains(before, "n0") {
		t.Errorf("rows of the Southbound database (-before +after):\n%s", diff)
	}
}

// T2: routers and switches have the same UUIDs in each database, so ovn-northd keeps their datapaths, and
// ovn-controller their zones of conntrack, when a database is rebuilt.
func TestDatapathsKeepTheirUUIDs(t *testing.T) {
	w := small(t)
	fill := func() (*ovntest.Central, *ovsdb.DB, *nbsync.Sync, string) {
		c, db, s := open(t)
		apply(t, s, rowsOf(w, w.Units()))
		var out string
		for _, table := range []string{nbdb.LogicalRouterTable, nbdb.LogicalSwitchTable} {
			rows, err := c.NBCtl("--format=csv", "--columns=name,_uuid", "list", table)
			if err != nil {
				t.Fatal(err)
			}
			out += rows
		}
		return c, db, s, out
	}
	_, _, _, first := fill()
	c, db, s, second := fill()
	if first != second || !strings.Contains(first, "n0") {
		t.Errorf("the first database:\n%s\nthe second:\n%s", first, second)
	}
	if _, err := c.NBCtl("clear", "logical_switch", "n0", "external_ids", "--", "set", "logical_switch", "n0", "name=theirs"); err != nil {
		t.Fatal(err)
	}
	catchUp(t, c, db)
	apply(t, s, rowsOf(w, w.Units()))
	if _, err := c.NBCtl("get", "logical_switch", "n0", "name", "--", "get", "logical_switch", "theirs", "name"); err != nil {
		t.Errorf("a switch whose UUID somebody else uses: %v", err)
	}
}
