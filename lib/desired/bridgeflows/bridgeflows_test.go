package bridgeflows

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Packets from a router outside to pods go to the gateway router, whether Services are known
// or not.
func TestFlowsOfPods(t *testing.T) {
	b := Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	without := Base(b)
	b.Pods = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd01::/48")}
	var got []string
	for _, f := range Base(b) {
		if !slices.Contains(without, f) {
			got = append(got, f.String())
		}
	}
	if diff := cmp.Diff([]string{
		"cookie=0x6b38736777,table=0,priority=60,ip,in_port=1,dl_dst=0a:00:00:00:00:01,nw_dst=10.128.0.0/14,actions=output:2",
		"cookie=0x6b38736777,table=0,priority=60,ipv6,in_port=1,dl_dst=0a:00:00:00:00:01,ipv6_dst=fd01::/48,actions=output:2",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
