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
	way := func(row, column, network, address string, err error) world.Way {
		return world.Way{Row: row, Column: column, Network: network, Address: netip.MustParseAddrPort(address), Err: err}
	}
	ways := []world.Way{
		way("a", "a", "tcp", "10.0.0.1:80", nil),
		way("a", "a", "udp", "10.0.0.1:80", nil),
		way("a", "a", "tcp", "[fd00::1]:80", nil),
		way("a", "other/b", "tcp", "10.0.0.2:80", bad),
		way("a", "other/b", "udp", "10.0.0.2:80", nil),
		way("other/b", "a", "tcp", "10.0.0.1:80", nil),
		way("other/b", "a", "tcp", "[fd00::1]:80", bad),
		way("other/b", "other/b", "tcp", "10.0.0.2:80", nil),
	}
	const want = `IPv4     a   other/b
a        ok  FAIL
other/b  ok  ok

IPv6     a
a        ok
other/b  FAIL
`
	if diff := cmp.Diff(want, world.Table(ways)); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
}
