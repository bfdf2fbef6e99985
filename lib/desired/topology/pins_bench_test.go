package topology

import (
	"fmt"
	"net/netip"
	"testing"
)

// BenchmarkHostRows computes the routes to one of 1 000 hosts, each of which is the gateway of its own pods.
func BenchmarkHostRows(b *testing.B) {
	c := Cluster{Router: "r", Subnets: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}, Nodes: map[string][]netip.Prefix{}, Gateways: Gateways{}}
	for i := range 1000 {
		name := fmt.Sprint("n", i)
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i), 0}), 24)
		c.Nodes[name] = []netip.Prefix{subnet}
		c.Gateways[name] = Gateway{Rampout: c.Nodes[name]}
	}
	host := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for b.Loop() {
		if len(c.HostRows("n7", host)) != 1 {
			b.Fatal("want one route")
		}
	}
}
