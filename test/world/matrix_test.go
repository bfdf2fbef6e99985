package world_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/world"
)

func TestTable(t *testing.T) {
	bad := errors.New("no answer")
	attempt := func(row, column, network, address string, err error) world.Attempt {
		return world.Attempt{Row: row, Column: column, Network: network, Address: netip.MustParseAddrPort(address), Err: err}
	}
	attempts := []world.Attempt{
		attempt("a", "a", "tcp", "10.0.0.1:80", nil),
		attempt("a", "a", "udp", "10.0.0.1:80", nil),
		attempt("a", "a", "tcp", "[fd00::1]:80", nil),
		attempt("a", "other/b", "tcp", "10.0.0.2:80", bad),
		attempt("a", "other/b", "udp", "10.0.0.2:80", nil),
		attempt("other/b", "a", "tcp", "10.0.0.1:80", nil),
		attempt("other/b", "a", "tcp", "[fd00::1]:80", bad),
		attempt("other/b", "other/b", "tcp", "10.0.0.2:80", nil),
	}
	const want = `IPv4     a   other/b
a        ok  FAIL
other/b  ok  ok

IPv6     a
a        ok
other/b  FAIL
`
	if diff := cmp.Diff(want, world.Table(attempts)); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
}
