package host

import "testing"

// Alone makes a fabric and the only host on it, and removes both when the test ends. The caller has checked Missing.
func Alone(t testing.TB, name string) *Host {
	t.Helper()
	fabric, err := NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fabric.Close)
	h, err := New(Options{Name: name, Fabric: fabric})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}
