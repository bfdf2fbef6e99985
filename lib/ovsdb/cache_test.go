package ovsdb_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// L9c: the cache of a connection replaced by Renew is freed.
func TestARenewedCacheIsFreed(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	up, _ := keep(t, db)
	<-up
	for range 50 {
		if err := addSwitch(t, db, "sw"+time.Now().String()); err != nil {
			t.Fatal(err)
		}
	}
	freed := make(chan struct{})
	runtime.AddCleanup(db.Client().Cache(), func(struct{}) { close(freed) }, struct{}{})
	if err := db.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-up
	s.await(func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	})
}

// L9b: a connection lives while large updates come in, although the reply to a probe waits behind them.
func TestAProbeBehindUpdates(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	ovsdb.ProbeFast(db) // 2 s
	up, down := keep(t, db)
	<-up
	db.OnRow(func(string, string) { time.Sleep(30 * time.Millisecond) })
	const rows = 200
	go func() {
		var args []string
		for i := range rows {
			args = append(args, "--", "ls-add", fmt.Sprint("sw", i))
		}
		s.nbctl(args[1:]...)
	}()
	s.await(func() bool {
		c := db.Client()
		return c != nil && c.Cache() != nil && c.Cache().Table(nbdb.LogicalSwitchTable).Len() == rows
	})
	select {
	case err := <-down:
		t.Error(err)
	default:
	}
}

// L9c: a cache without indexes has the rows, also after a new connection, and takes in changes of them.
func TestUnindexed(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "a", "--", "lsp-add", "a", "p")
	o := options(t, s.remote())
	o.Unindexed = true
	db, err := ovsdb.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	up, _ := keep(t, db)
	<-up
	s.nbctl("lsp-set-addresses", "p", "dynamic", "--", "lsp-add", "a", "q")
	s.await(func() bool { return db.Client().Cache().Table(nbdb.LogicalSwitchPortTable).Len() == 2 })
	s.nbctl("lsp-del", "q")
	s.await(func() bool { return db.Client().Cache().Table(nbdb.LogicalSwitchPortTable).Len() == 1 })
	if err := db.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, row := range db.Client().Cache().Table(nbdb.LogicalSwitchPortTable).RowsShallow() {
		if p := row.(*nbdb.LogicalSwitchPort); p.Name != "p" || fmt.Sprint(p.Addresses) != "[dynamic]" {
			t.Errorf("%+v", p)
		}
	}
	if list, err := db.Client().Cache().Table(nbdb.LogicalSwitchPortTable).Index("name"); err == nil {
		t.Errorf("there is an index of %d names", len(list))
	}
}
