package ovsdb_test

import (
	"errors"
	"strings"
	"testing"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// T1: if two processes believe to be the leader, only one can write.
func TestOnlyTheLeaderWrites(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer central.Close()
	open := func() *ovsdb.DB {
		m, err := ovsdb.NBModel()
		if err != nil {
			t.Fatal(err)
		}
		db, err := ovsdb.Open(t.Context(), ovsdb.Options{Name: "NB", Remotes: []string{central.NB}, Model: m})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	lost := map[string]bool{} // not elected any more
	lead := func(db *ovsdb.DB, who string) *ovsdb.Term {
		t.Helper()
		term, err := db.Lead(t.Context(), who, "kube-system/"+who[:1], func() bool { return !lost[who] })
		if err != nil {
			t.Fatal(err)
		}
		return term
	}
	write := func(term *ovsdb.Term, name string) error {
		_, err := term.Transact(t.Context(), []libovsdb.Operation{{Op: "insert", Table: "Logical_Switch", Row: libovsdb.Row{"name": name}}})
		return err
	}
	one, two := open(), open()
	a := lead(one, "a/1")
	if err := write(a, "from-a"); err != nil {
		t.Fatal(err)
	}
	b := lead(two, "b/2")
	if b.Leader().Term != a.Leader().Term+1 {
		t.Errorf("terms %d and %d", a.Leader().Term, b.Leader().Term)
	}
	for db, want := range map[*ovsdb.DB]string{one: "kube-system/b", two: "kube-system/b"} {
		if err := db.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l, err := db.Leader(); err != nil || l.Lease != want || l.Identity != "b/2" {
			t.Errorf("leader %+v (%v), want Lease %s", l, err, want)
		}
	}
	if err := write(a, "late"); !errors.Is(err, ovsdb.ErrDeposed) || !strings.Contains(err.Error(), "b/2 since ") {
		t.Errorf("the former leader's transaction: %v", err)
	}
	if err := write(b, "from-b"); err != nil {
		t.Error(err)
	}

	// Removed by hand, the token is written again; overwritten, it ends the term.
	nbctl := func(args ...string) string {
		out, err := central.NBCtl(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	nbctl("remove", "NB_Global", ".", "external_ids", "ovn-k8s-leader")
	if err := two.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(b, "from-b-again"); err != nil {
		t.Error(err)
	}
	// A former leader, no longer elected, does not use the moment without a token.
	lost["b/2"] = true
	nbctl("remove", "NB_Global", ".", "external_ids", "ovn-k8s-leader")
	if err := two.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(b, "revived"); err == nil || errors.Is(err, ovsdb.ErrDeposed) {
		t.Errorf("a transaction of a leader that is not elected, without a token: %v", err)
	}
	if ours, err := b.Confirm(t.Context()); ours || err != nil {
		t.Errorf("its term goes on: %v %v", ours, err)
	}
	lost["b/2"] = false
	if err := b.Restore(t.Context()); err != nil {
		t.Error(err)
	}
	if ours, err := b.Confirm(t.Context()); !ours || err != nil {
		t.Errorf("its term does not go on: %v %v", ours, err)
	}
	nbctl("set", "NB_Global", ".", "external_ids:ovn-k8s-leader=me")
	if err := write(b, "overwritten"); !errors.Is(err, ovsdb.ErrDeposed) || !strings.Contains(err.Error(), `"me"`) {
		t.Errorf("after the token was overwritten: %v", err)
	}
	again := lead(one, "a/1")
	if err := write(again, "a-leads"); err != nil {
		t.Error(err)
	}
	if again.Leader().Term <= a.Leader().Term {
		t.Errorf("a leads with term %d after term %d: the numbers do not grow without the token", again.Leader().Term, a.Leader().Term)
	}
	got := nbctl("--bare", "--columns=name", "list", "Logical_Switch")
	for _, name := range []string{"late", "overwritten", "revived"} {
		if strings.Contains(got, name) {
			t.Errorf("%s was written: %s", name, got)
		}
	}
}
