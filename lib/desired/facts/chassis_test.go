package facts

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"ovn-k8s/lib/desired/topology"
)

// L3: the hosts of a node have an order, and the next hops of its replies follow from it: a restart chooses no others.
func TestHostsOfANodeHaveAnOrder(t *testing.T) {
	all := topology.Cluster{Gateways: topology.Gateways{}}
	for i := range 8 { // a host may have got another system-id
		all.Gateways[fmt.Sprint("gw", i)] = topology.Gateway{Chassis: fmt.Sprint("id", i), Node: "n1"}
	}
	x := NewIndex()
	x.PutCluster(all)
	if got := x.Now().ChassisOf["n1"]; len(got) != 8 || !slices.IsSorted(got) {
		t.Errorf("got %v", got)
	}
}

// The addresses of a gateway come first: a large Service has its NodePorts at the first ones only, and no report displaces these.
func TestNodePortsStartAtTheGateway(t *testing.T) {
	own, lower, six := netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	f := Facts{Addresses: map[string][]netip.Addr{"n1": {lower, own, six}}}
	f.Cluster.Gateways = topology.Gateways{"gw": {IPs: []netip.Prefix{netip.PrefixFrom(own, 24)}}}
	got := f.NodePortAddresses(Chassis{Node: "n1", Gateways: []string{"gw"}})
	if !slices.Equal(got[0], []netip.Addr{own, lower}) || !slices.Equal(got[1], []netip.Addr{six}) {
		t.Errorf("got %v", got)
	}
}

// Packets for a gateway go to the tunnels of its host: to those in the Southbound database, while it has any.
func TestGatewayHosts(t *testing.T) {
	recorded, first, second, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3"), netip.MustParseAddr("198.51.100.1")
	f := Facts{Addresses: map[string][]netip.Addr{"n1": {first, other}}}
	f.Cluster.Gateways = topology.Gateways{"gw": {Chassis: "c1", Tunnel: recorded, Node: "n1"}, "old": {Chassis: "c2"}}
	for _, tt := range []struct {
		tunnels Tunnels
		want    GatewayHost
	}{
		{nil, GatewayHost{[]netip.Addr{recorded}, []netip.Addr{first, other}}},
		{Tunnels{"c1": {first, second}}, GatewayHost{[]netip.Addr{first, second}, []netip.Addr{other}}},
	} {
		f.reserved.tunnels = tt.tunnels
		if got := f.GatewayHosts(); fmt.Sprint(got["gw"]) != fmt.Sprint(tt.want) || fmt.Sprint(got["old"]) != "{[] []}" || len(got) != 2 {
			t.Errorf("%v: got %v", tt.tunnels, got)
		}
	}
}
