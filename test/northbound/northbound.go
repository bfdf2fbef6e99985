// Package northbound connects tests to a Northbound database of their own.
package northbound

import (
	"context"
	"testing"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// Start starts OVN's databases with ovn-northd, and connects to the Northbound one. Both end with the test. It skips or
// fails a test without OVN, see require.Nothing.
func Start(t testing.TB) (*ovntest.Central, *ovsdb.DB) {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(central.Close)
	return central, Connect(t, central)
}

// Connect connects to the Northbound database until the end of the test.
func Connect(t testing.TB, central *ovntest.Central) *ovsdb.DB {
	t.Helper()
	db, err := Open(t.Context(), central.NB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// Open connects to a Northbound database with one or more servers. It reads all tables.
func Open(ctx context.Context, remotes ...string) (*ovsdb.DB, error) {
	model, err := ovsdb.NBModel()
	if err != nil {
		return nil, err
	}
	return ovsdb.Open(ctx, ovsdb.Options{Name: "NB", Remotes: remotes, Model: model})
}
