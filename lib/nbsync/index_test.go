package nbsync_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/nbsync/owned"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/ovntest"
)

// followed opens a connection as the watcher does. up has a token for each new connection.
func followed(t *testing.T) (c *ovntest.Central, db *ovsdb.DB, up chan struct{}) {
	t.Helper()
	c, _, _ = open(t)
	m, err := ovsdb.NBModel()
	if err != nil {
		t.Fatal(err)
	}
	var tables []ovsdb.Table // northd changes other columns
	for name, columns := range owned.Columns() {
		tables = append(tables, ovsdb.Table{Name: name, Columns: columns})
	}
	db, err = ovsdb.Open(t.Context(), ovsdb.Options{Name: "NB", Remotes: []string{c.NB}, Model: m, Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	up = make(chan struct{}, 10)
	go func() {
		defer close(ended)
		_ = db.Run(ctx, func() { up <- struct{}{} }, nil)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-up
	return c, db, up
}

// Issue 14, line 5: rows that come in many transactions cost a number of read rows each, and not the whole table with
// each transaction.
func TestManyTransactionsReadFewRows(t *testing.T) {
	const pods, each = 1600, 10
	c, db, _ := followed(t)
	c.StopNorthd()
	s := &nbsync.Sync{DB: db}
	defer s.Follow(db)()
	w := big(t, pods)
	units := slices.Sorted(slices.Values(w.Units()))
	first := slices.IndexFunc(units, func(u nb.Unit) bool { return strings.HasPrefix(string(u), "pod/") })
	last := first + pods
	apply(t, s, rowsOf(w, slices.Concat(units[:first], units[last:])))
	nbsync.Looked(s)
	for chunk := range slices.Chunk(units[first:last], each) {
		apply(t, s, rowsOf(w, chunk))
	}
	if diff := nbsync.IndexDiff(s); diff != "" {
		t.Fatalf("-cache +index:\n%s", diff)
	}
	if n := nbsync.Copies(s); n > pods/10 {
		t.Errorf("the index has copies of %d rows", n)
	}
	if n := nbsync.Looked(s); n > 40*pods {
		t.Errorf("%d pods read %d rows", pods, n)
	}
}

// L9c: a plan reads the changed rows only, in a database of any size.
func TestAPlanLooksAtWhatChanged(t *testing.T) {
	c, db, up := followed(t)
	s := &nbsync.Sync{DB: db}
	reported := make(chan nb.Unit, 10000)
	defer s.Follow(db)()
	defer db.Handle(s.Handler(func(u nb.Unit) { reported <- u }))()
	w := big(t, 300)
	apply(t, s, rowsOf(w, w.Units()))
	check := func(what string, atMost int) {
		t.Helper()
		if diff := nbsync.IndexDiff(s); diff != "" {
			t.Fatalf("%s (-cache +index):\n%s", what, diff)
		}
		if n := nbsync.Looked(s); n > atMost {
			t.Errorf("%s: looked at %d rows, want at most %d", what, n, atMost)
		}
	}
	for len(reported) > 0 {
		<-reported
	}
	check("all pods", 1<<20)
	if n := nbsync.Copies(s); n > 10 { // L5
		t.Errorf("after many rows came, the index has copies of %d", n)
	}
	for i := range 5 {
		nbsync.Looked(s)
		apply(t, s, rowsOf(w, append(w.Put(newPod(fmt.Sprint("new", i), "n5")), w.Allocate()...)))
		check("a pod comes", 20)
		apply(t, s, rowsOf(w, w.Remove(newPod(fmt.Sprint("new", i), "n5"))))
		check("a pod goes", 20)
	}
	for len(reported) > 0 {
		<-reported
	}
	if _, err := c.NBCtl("lsp-set-addresses", "default_p1", "unknown"); err != nil {
		t.Fatal(err)
	}
	for u := range reported {
		if u == "pod/default/p1" {
			break
		}
	}
	nbsync.Looked(s)
	if changes := apply(t, s, rowsOf(w, []nb.Unit{"pod/default/p1"})); len(changes) != 1 {
		t.Errorf("changes: %v", changes)
	}
	check("a row is changed by hand", 20)
	if err := db.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-up
	check("a new connection", 1<<20)
}
