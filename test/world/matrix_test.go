package world_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/world"
)

func TestTable(t *testing.T) {
	a := world.Endpoint{Name: "default/a", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
	b := world.Endpoint{Name: "other/b", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	cells := []world.Cell{
		{From: a, To: a, Address: a.Addresses[0]},
		{From: a, To: a, Address: a.Addresses[1]},
		{From: a, To: b, Address: b.Addresses[0], Err: errors.New("no answer")},
		{From: b, To: a, Address: a.Addresses[0]},
		{From: b, To: a, Address: a.Addresses[1], Err: errors.New("no answer")},
		{From: b, To: b, Address: b.Addresses[0]},
	}
	const want = `IPv4     a   other/b
a        ok  FAIL
other/b  ok  ok

IPv6     a
a        ok
other/b  FAIL
`
	if diff := cmp.Diff(want, world.Table(cells)); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
	if n := len(world.Failed(cells)); n != 2 {
		t.Errorf("%d failed, want 2", n)
	}
}
