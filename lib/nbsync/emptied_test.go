package nbsync_test

import (
	"fmt"
	"strings"
	"testing"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb/nbdb"
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
	w.Settle()
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
