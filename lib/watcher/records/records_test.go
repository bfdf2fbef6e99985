package records

import (
	"testing"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// A new connection is told once, by the first reading over it. It may have replaced the other one before anybody was told.
func TestAnewIsTheFirstReadingOverAConnection(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer central.Close()
	if out, err := central.NBCtl("lr-add", names.ClusterRouter, "--", "set", "Logical_Router", names.ClusterRouter, "external_ids:"+names.ClusterRouterTag+"=yes"); err != nil {
		t.Fatal(out, err)
	}
	model, err := ovsdb.NBModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovsdb.Open(t.Context(), ovsdb.Options{Name: "NB", Remotes: []string{central.NB}, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := New(db)
	for range 2 {
		for _, want := range []bool{true, false} {
			for range 2 {
				if _, found, _ := r.Topology(); !found {
					t.Fatal("no topology")
				}
			}
			if got := r.Anew(); got != want {
				t.Errorf("a reading is anew: %v, want %v", got, want)
			}
		}
		if err := db.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.Anew() {
			t.Error("it is anew before it is read")
		}
	}
}
