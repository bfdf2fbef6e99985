package nbsync_test

import (
	"context"
	"fmt"
	"testing"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
)

// L9c: a plan reads the changed rows only, in a database of any size.
func TestAPlanLooksAtWhatChanged(t *testing.T) {
	c, _, _ := open(t)
	m, err := ovsdb.NBModel()
	if err != nil {
		t.Fatal(err)
	}
	var tables []ovsdb.Table // northd changes other columns
	for name, columns := range nbsync.Columns() {
		tables = append(tables, ovsdb.Table{Name: name, Columns: columns})
	}
	db, err := ovsdb.Open(t.Context(), ovsdb.Options{Name: "NB", Remotes: []string{c.NB}, Model: m, Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	s := &nbsync.Sync{DB: db}
	reported := make(chan nb.Unit, 10000)
	defer s.Follow(db)()
	defer db.Handle(s.Handler(func(u nb.Unit) { reported <- u }))()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	up := make(chan struct{}, 10)
	go func() {
		defer close(ended)
		_ = db.Run(ctx, func() { up <- struct{}{} }, nil)
	}()
	defer func() { cancel(); <-ended }()
	<-up
	w := big(t, 300)
	apply(t, s, rowsOf(w, w.Units()))
	check := func(what string, atMost int) {
		t.Helper()
		if diff := nbsync.MirrorDiff(s); diff != "" {
			t.Fatalf("%s (-cache +mirror):\n%s", what, diff)
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
		t.Errorf("after many rows came, the mirror has copies of %d", n)
	}
	for i := range 5 {
		nbsync.Looked(s)
		apply(t, s, rowsOf(w, append(w.Put(newPod(fmt.Sprint("new", i), "n5")), w.Settle()...)))
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
