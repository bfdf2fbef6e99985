package topology

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

func addrs(s string) (out []netip.Addr) {
	for a := range strings.SplitSeq(s, ",") {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// gateway is one on a chassis of its own.
func gateway(n int) Gateway {
	return Gateway{
		Mode: Physical, Interface: "eth1", Chassis: fmt.Sprint("chassis-", n), MAC: fmt.Sprintf("02:00:00:00:00:%02x", n),
		IPs: prefixes(fmt.Sprintf("10.0.0.%d/24,fd10::%x/64", n, n)), NextHops: addrs("10.0.0.1,fd10::1"),
	}
}

func with(t *testing.T, c Cluster, name string, g Gateway) Cluster {
	t.Helper()
	c, err := c.WithGateway(name, g)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// P1: clients outside learn the MTU of pods.
func TestGatewayRows(t *testing.T) {
	g := gateway(5)
	g.MTU = 1342
	c := with(t, dual(t), "Gw1", g)
	want := `Logical_Router GR_Gw1 external_ids={first_gateway="yes", physical_ip="10.0.0.5"} name="GR_Gw1" options={always_learn_from_arp_request="false", chassis="chassis-5", lb_force_snat_ip="100.64.0.2 fd98::2", mac_binding_age_threshold="86400"} load_balancer_group=Load_Balancer_Group/ovn-k8s-cluster load_balancer_group=Load_Balancer_Group/ovn-k8s-gateways
Logical_Switch ext_Gw1 name="ext_Gw1"
Logical_Router_Port rtoj-GR_Gw1 external_ids={connect_to_join="yes"} mac="00:00:00:40:00:02" name="rtoj-GR_Gw1" networks=["100.64.0.2/16" "fd98::2/64"] in=Logical_Router/GR_Gw1.ports
Logical_Switch_Port jtor-GR_Gw1 addresses=["00:00:00:40:00:02"] name="jtor-GR_Gw1" options={router-port="rtoj-GR_Gw1"} type="router" in=Logical_Switch/join.ports
Logical_Router_Port rtoe-GR_Gw1 external_ids={gateway-physical-ip="yes"} mac="02:00:00:00:00:05" name="rtoe-GR_Gw1" networks=["10.0.0.5/24" "fd10::5/64"] options={gateway_mtu="1342"} in=Logical_Router/GR_Gw1.ports
Logical_Switch_Port etor-GR_Gw1 addresses=["02:00:00:00:00:05"] name="etor-GR_Gw1" options={router-port="rtoe-GR_Gw1"} type="router" in=Logical_Switch/ext_Gw1.ports in=Port_Group/ovn_k8s_entries.ports
Logical_Switch_Port eth1_Gw1 addresses=["unknown"] name="eth1_Gw1" options={requested-chassis="chassis-5"} in=Logical_Switch/ext_Gw1.ports
Logical_Router_Static_Route GR_Gw1/192.168.0.0/16 ip_prefix="192.168.0.0/16" nexthop="100.64.0.1" in=Logical_Router/GR_Gw1.static_routes
NAT GR_Gw1/192.168.0.0/16 external_ip="10.0.0.5" logical_ip="192.168.0.0/16" type="snat" in=Logical_Router/GR_Gw1.nat
Logical_Router_Static_Route GR_Gw1/fd01::/48 ip_prefix="fd01::/48" nexthop="fd98::1" in=Logical_Router/GR_Gw1.static_routes
NAT GR_Gw1/fd01::/48 external_ip="fd10::5" logical_ip="fd01::/48" type="snat" in=Logical_Router/GR_Gw1.nat
Logical_Router_Policy GR_Gw1/ip4 action="reroute" match="inport == \"rtoe-GR_Gw1\" && ip4 && ct.dnat" nexthops=["100.64.0.1"] priority=1000 in=Logical_Router/GR_Gw1.policies
Logical_Router_Policy GR_Gw1/ip6 action="reroute" match="inport == \"rtoe-GR_Gw1\" && ip6 && ct.dnat" nexthops=["fd98::1"] priority=1000 in=Logical_Router/GR_Gw1.policies
Logical_Router_Policy GR_Gw1/not-back action="drop" match="inport == \"rtoe-GR_Gw1\" && outport == \"rtoe-GR_Gw1\" && (ip4.src != 10.0.0.5 || ip6.src != fd10::5)" priority=999 in=Logical_Router/GR_Gw1.policies
Logical_Router_Policy GR_Gw1/not-inside action="drop" match="inport == \"rtoe-GR_Gw1\" && (ip4.src == {192.168.0.0/16, 100.64.0.0/16} || ip6.src == {fd01::/48, fd98::/64})" priority=1001 in=Logical_Router/GR_Gw1.policies
Logical_Router_Policy GR_Gw1/not-repeated action="drop" match="inport == \"rtoe-GR_Gw1\" && tcp && ct.new && ct_mark.force_snat == 1 && flags.force_snat_for_lb == 0" priority=1001 in=Logical_Router/GR_Gw1.policies
Logical_Router_Static_Route GR_Gw1/0.0.0.0/0 ip_prefix="0.0.0.0/0" nexthop="10.0.0.1" output_port="rtoe-GR_Gw1" in=Logical_Router/GR_Gw1.static_routes
Logical_Router_Static_Route GR_Gw1/::/0 ip_prefix="::/0" nexthop="fd10::1" output_port="rtoe-GR_Gw1" in=Logical_Router/GR_Gw1.static_routes
Logical_Router_Static_Route Gw1/0.0.0.0/0 ip_prefix="0.0.0.0/0" nexthop="100.64.0.2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route Gw1/::/0 ip_prefix="::/0" nexthop="fd98::2" in=Logical_Router/ovn_cluster_router.static_routes
`
	if diff := cmp.Diff(want, text(append(c.GatewayRows("Gw1"), c.GatewayRoutes("Gw1")...))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.GatewayRows("gw1") != nil || c.GatewayRoutes("gw1") != nil {
		t.Error("a gateway that there is not has rows")
	}
}

func TestGatewayRegistry(t *testing.T) {
	c := dual(t)
	for n := 2; n < 7; n++ {
		g := gateway(n)
		g.VLAN, g.Ports, g.Rampout = n, "10000-29999", prefixes(fmt.Sprintf("192.168.%d.0/24", n))
		c = with(t, c, fmt.Sprint("Gw", n), g)
	}
	c, _ = c.WithoutGateway("Gw2") // so the first is not the one with the lowest address
	c = with(t, c, "Gw2", gateway(2)).WithNodeOnChassis("Kube-Master", "chassis-4")
	got, err := ReadRegistry(c.Registry())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !got.Gateways["Gw3"].First || got.Gateways["Gw4"].Node != "kube-master" {
		t.Errorf("%+v", got.Gateways)
	}
	r := c.Registry()
	r[names.GatewayPrefix+"Gw3"] = "junk"
	if got, err := ReadRegistry(r); err == nil || !strings.Contains(err.Error(), `reading ovn-k8s-gateway-Gw3 of the topology: "junk" is not a gateway`) || len(got.Gateways) != 4 {
		t.Errorf("%v %v", got.Gateways.Names(), err)
	}
}

// One gateway is the first, and stays it while it is there.
func TestOneFirstGateway(t *testing.T) {
	c := dual(t)
	for n := 2; n < 5; n++ {
		c = with(t, c, fmt.Sprint("gw", n), gateway(n))
	}
	first := func() (all string) {
		for _, n := range c.Gateways.Names() {
			if c.Gateways[n].First {
				all += n
			}
		}
		return all
	}
	if got := first(); got != "gw2" {
		t.Errorf("first: %s", got)
	}
	c = with(t, c, "gw2", gateway(2))
	if got := first(); got != "gw2" {
		t.Errorf("run again: %s", got)
	}
	c, _ = c.WithoutGateway("gw2")
	if got := first(); got != "gw3" {
		t.Errorf("removed: %s", got)
	}
	c = with(t, c, "gw2", gateway(2))
	if got := first(); got != "gw3" {
		t.Errorf("back again: %s", got)
	}
}

func TestJoinAddresses(t *testing.T) {
	c := dual(t)
	for n := 2; n < 6; n++ {
		c = with(t, c, fmt.Sprint("gw", n), gateway(n))
	}
	c, _ = c.WithoutGateway("gw3")
	again := gateway(4)
	again.Join = addrs("100.64.0.77,fd98::77")
	c = with(t, c, "gw4", again)
	c = with(t, c, "gw7", gateway(7))
	taken, err := c.WithGateway("gw8", gateway(8), addrs("100.64.0.6,fd98::7")...)
	if err != nil {
		t.Fatal(err)
	}
	old := gateway(9)
	old.Join = addrs("100.64.0.9,fd98::9")
	taken = with(t, taken, "gw9", old)
	var got []string
	for _, n := range taken.Gateways.Names() {
		got = append(got, n+" "+ipnet.Join(taken.Gateways[n].Join))
	}
	want := []string{"gw2 100.64.0.2,fd98::2", "gw4 100.64.0.4,fd98::4", "gw5 100.64.0.5,fd98::5", "gw7 100.64.0.3,fd98::3", "gw8 100.64.0.8,fd98::8", "gw9 100.64.0.9,fd98::9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	taken, _ = taken.WithoutGateway("gw9")
	moved, err := taken.Resize(taken.Subnets, prefixes("100.64.0.0/29,fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	if got := ipnet.Join(moved.Gateways["gw5"].Join); got != "100.64.0.5,fd98::5" {
		t.Errorf("a gateway within the new join subnet moved to %s", got)
	}
	if got := ipnet.Join(moved.Gateways["gw8"].Join); got != "100.64.0.6,fd98::8" {
		t.Errorf("a gateway outside of one new join subnet has %s", got)
	}
	if _, err := moved.WithGateway("gw10", gateway(10)); err == nil || !strings.Contains(err.Error(), "ran out of IPs for gateway routers: join subnet 100.64.0.0/29 is full") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(ipnet.Join(taken.Gateways["gw8"].Join), "100.64.0.8,fd98::8"); diff != "" {
		t.Errorf("resizing changed the original: %s", diff)
	}
}

// A cluster becomes dual stack under its gateways: they keep their join addresses, whatever their names, and get IPv6 addresses
// with the same host numbers. If it loses a family again, they keep the other one.
func TestJoinAddressesWithAnotherFamily(t *testing.T) {
	four, err := New(names.ClusterRouter, prefixes("192.168.0.0/16"), prefixes("100.64.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"z", "m", "a", "b"} {
		g := gateway(2 + i)
		g.IPs, g.NextHops = g.IPs[:1], nil
		four = with(t, four, name, g)
	}
	four, _ = four.WithoutGateway("m")
	all := func(c Cluster, err error) (got []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range c.Gateways.Names() {
			got = append(got, name+" "+ipnet.Join(c.Gateways[name].Join))
		}
		return got
	}
	subnets, join := prefixes("192.168.0.0/16,fd01::/48"), prefixes("100.64.0.0/16,fd98::/64")
	both, err := four.Resize(subnets, join)
	if diff := cmp.Diff([]string{"a 100.64.0.4,fd98::4", "b 100.64.0.5,fd98::5", "z 100.64.0.2,fd98::2"}, all(both, err)); diff != "" {
		t.Errorf("dual stack (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(all(four, nil), all(both.Resize(subnets[:1], join[:1]))); diff != "" {
		t.Errorf("IPv4 again (-want +got):\n%s", diff)
	}
	six, err := four.Resize(subnets, prefixes("100.64.0.0/16,fd98::/126")) // of three addresses the router has one
	if err == nil || !strings.Contains(err.Error(), "join subnet fd98::/126 is full") || len(six.Gateways) != 2 {
		t.Errorf("a small subnet: %v, %v", all(six, nil), err)
	}
}

// Egress subnets of a family in which their gateway has no address lead nowhere. They change no rows of other gateways and of hosts.
func TestEgressSubnetsWithoutAnAddress(t *testing.T) {
	c := dual(t)
	for i := range 3 {
		g := gateway(2 + i)
		g.IPs, g.NextHops = g.IPs[:1], nil
		c = with(t, c, fmt.Sprint("gw", i), g)
	}
	claim := c.Gateways["gw0"]
	claim.Rampout = prefixes("fd01:0:0:2::/80")
	pinned := with(t, c, "gw0", claim)
	if got := ChangedGateways(c, pinned); len(got) > 1 {
		t.Errorf("it changes %v", got)
	}
	if pinned.PinnedByPolicy(netip.IPv6Unspecified()) {
		t.Error("hosts have rows for it")
	}
	for _, name := range c.Gateways.Names() {
		if diff := cmp.Diff(fmt.Sprint(c.GatewayRoutes(name)), fmt.Sprint(pinned.GatewayRoutes(name))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	claim.IPs = gateway(2).IPs // a first gateway for IPv6: the others have no routes of IPv6
	six := with(t, c, "gw0", claim)
	if diff := cmp.Diff(fmt.Sprint(c.GatewayRoutes("gw1")), fmt.Sprint(six.GatewayRoutes("gw1"))); diff != "" || len(six.GatewayRoutes("gw0")) < len(c.GatewayRoutes("gw0"))+2 {
		t.Errorf("an address of IPv6: %s", diff)
	}
}

// A gateway's MAC on the join switch is never the cluster router's.
func TestJoinMACsDiffer(t *testing.T) {
	// rtoj-ovn_cluster_router has 00:00:00:11:F3:5F, like 10.17.243.95.
	c, err := New(names.ClusterRouter, prefixes("192.168.0.0/16"), prefixes("10.17.243.92/29"))
	if err != nil {
		t.Fatal(err)
	}
	c.Join = prefixes("10.17.243.88/29")
	for n := 2; n < 6; n++ {
		g := gateway(n)
		g.IPs, g.NextHops = prefixes(fmt.Sprintf("172.16.0.%d/24", n)), nil
		c, err = c.WithGateway(fmt.Sprint("gw", n), g)
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{ipnet.RouterMAC(names.RouterToJoin(c.Router)): true}
	for n, g := range c.Gateways {
		if mac := joinMAC(g.Join); seen[mac] {
			t.Errorf("%s: the second with MAC %s", n, mac)
		} else {
			seen[mac] = true
		}
	}
}

func TestPins(t *testing.T) {
	c := dual(t)
	g := gateway(2)
	g.Rampout = prefixes("192.168.2.0/24,192.168.1.128/25,fd01:0:0:1::/64")
	c = with(t, with(t, c, "gw2", g), "gw3", gateway(3))
	want := `Logical_Router_Static_Route gw2/0.0.0.0/0 ip_prefix="0.0.0.0/0" nexthop="100.64.0.2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw2/100.64.0.2/32 ip_prefix="100.64.0.2" nexthop="100.64.0.2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw2/::/0 ip_prefix="::/0" nexthop="fd98::2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw2/fd98::2/128 ip_prefix="fd98::2" nexthop="fd98::2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw2/from/192.168.2.0/24 ip_prefix="192.168.2.0/24" nexthop="100.64.0.2" policy="src-ip" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Policy gw2/from/192.168.1.128/25 action="reroute" match="ip4.src == 192.168.1.128/25" nexthops=["100.64.0.2"] priority=1000 in=Logical_Router/ovn_cluster_router.policies
Logical_Router_Policy gw2/inside/192.168.1.128/25 action="allow" match="ip4.src == 192.168.1.128/25 && ip4.dst == {192.168.0.0/16, 100.64.0.0/16}" priority=1001 in=Logical_Router/ovn_cluster_router.policies
Logical_Router_Static_Route gw2/from/fd01:0:0:1::/64 ip_prefix="fd01:0:0:1::/64" nexthop="fd98::2" policy="src-ip" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw3/0.0.0.0/0 ip_prefix="0.0.0.0/0" nexthop="100.64.0.3" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw3/100.64.0.3/32 ip_prefix="100.64.0.3" nexthop="100.64.0.3" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw3/::/0 ip_prefix="::/0" nexthop="fd98::3" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route gw3/fd98::3/128 ip_prefix="fd98::3" nexthop="fd98::3" in=Logical_Router/ovn_cluster_router.static_routes
`
	if diff := cmp.Diff(want, text(append(c.GatewayRoutes("gw2"), c.GatewayRoutes("gw3")...))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The pods of a node are a gateway's own while the Node is on its host: not those of a Node registered again on another host.
func TestPinsOfANodeOnAnotherHost(t *testing.T) {
	c := dual(t)
	sw := slices.Collect(maps.Keys(c.Nodes))[0]
	g := gateway(2)
	g.Node, g.Rampout = sw, c.Nodes[sw][:1]
	c = with(t, c, "gw2", g)
	pins := func(c Cluster) int {
		return strings.Count(text(c.GatewayRoutesBut("gw2", func(_ netip.Addr, own bool) bool { return !own })), "gw2/from/")
	}
	c.Chassis = map[string]string{sw: g.Chassis}
	moved := c
	moved.Chassis = map[string]string{sw: "elsewhere"}
	if pins(c) != 1 || pins(moved) != 0 {
		t.Errorf("%d pins on its host, %d on another", pins(c), pins(moved))
	}
	gone := c
	gone.Nodes = maps.Clone(c.Nodes)
	delete(gone.Nodes, sw)
	for _, now := range []Cluster{moved, gone} {
		if got := ChangedGateways(c, now); !slices.Contains(got, "gw2") {
			t.Errorf("changed: %q", got)
		}
	}
}

// A gateway without a default gateway leads outside only if none has one.
func TestGatewaysWithoutANextHop(t *testing.T) {
	g := gateway(2)
	g.NextHops = nil
	c := with(t, dual(t), "gw2", g)
	if got := text(c.GatewayRoutes("gw2")); strings.Count(got, "nexthop") != 2 {
		t.Errorf("alone: %s", got)
	}
	c = with(t, c, "gw3", gateway(3))
	if got := text(c.GatewayRoutes("gw2")); got != "" {
		t.Errorf("beside one that has: %s", got)
	}
}

func TestBadGateways(t *testing.T) {
	c := dual(t)
	other := gateway(2)
	other.Rampout = prefixes("192.168.2.0/23")
	c = with(t, c, "Gw2", other)
	for _, tt := range []struct {
		name   string
		change func(*Gateway)
		want   string
	}{
		{"gw", func(g *Gateway) { g.NextHops = addrs("10.9.0.1") }, "default gateway 10.9.0.1 is not in the subnet of physical IP 10.0.0.5/24: give a neighbour in 10.0.0.0/24"},
		{"gw", func(g *Gateway) { g.NextHops = addrs("10.0.0.1,10.0.0.2") }, "default gateways 10.0.0.1,10.0.0.2: give at most one IPv4 and one IPv6 address"},
		{"gw", func(g *Gateway) { g.NextHops = addrs("fd10::1,10.0.0.1,fd10::1") }, "default gateways fd10::1,fd10::1: give at most one IPv4 and one IPv6 address"},
		{"gw", func(g *Gateway) { g.NextHops = addrs("10.0.0.5") }, "default gateway 10.0.0.5 is the physical IP itself"},
		{"gw", func(g *Gateway) { g.IPs = g.IPs[:1] }, "default gateway fd10::1 is of another family"},
		{"gw", func(g *Gateway) { g.IPs = prefixes("10.0.0.5/24,10.0.1.5/24"); g.NextHops = nil }, "at most one IPv4 and one IPv6"},
		{"gw", func(g *Gateway) { g.IPs = nil; g.NextHops = nil }, "no physical IP"},
		{"gw", func(g *Gateway) { g.IPs = prefixes("192.168.7.1/24"); g.NextHops = nil }, "physical IP 192.168.7.1/24 is in a network of the cluster's own, 192.168.0.0/16"},
		{"gw", func(g *Gateway) { g.IPs = prefixes("10.0.0.2/24"); g.NextHops = nil }, "physical IP 10.0.0.2 is gateway Gw2's already"},
		{"gw", func(g *Gateway) { g.Rampout = prefixes("192.168.3.0/24") }, "rampout subnet 192.168.3.0/24 overlaps 192.168.2.0/23 of gateway Gw2"},
		{"gw", func(g *Gateway) { g.Rampout = prefixes("192.168.8.0/24,192.168.8.0/25") }, "rampout subnets 192.168.8.0/24 and 192.168.8.0/25 overlap"},
		{"gw", func(g *Gateway) { g.Chassis = "chassis-2" }, "eth1 is the interface of gateway Gw2 already"},
		{"gw2", func(*Gateway) {}, "there is a gateway Gw2 already"},
		{"g w", func(*Gateway) {}, `node name "g w" is not a DNS name`},
		{strings.Repeat("a.", 120) + "a", func(*Gateway) {}, "have room for 232: choose a shorter one"},
	} {
		g := gateway(5)
		tt.change(&g)
		if _, err := c.WithGateway(tt.name, g); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
	single := gateway(5)
	single.IPs, single.NextHops = prefixes("10.0.0.5/32,fd10::5/64"), addrs("10.9.0.1,fe80::1")
	if _, err := c.WithGateway("gw", single); err != nil {
		t.Errorf("next hops on the link: %v", err)
	}
}

// Every node is reached at its own addresses by way of its management port.
func TestHostRows(t *testing.T) {
	c := dual(t)
	own := addrs("10.1.1.1,fd20::1,192.168.1.2,100.64.0.9,127.0.0.1,fe80::1,0.0.0.0")
	want := `Logical_Router_Static_Route host/kube-master/10.1.1.1 ip_prefix="10.1.1.1" nexthop="192.168.1.2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Static_Route host/kube-master/fd20::1 ip_prefix="fd20::1" nexthop="fd01:0:0:1::2" in=Logical_Router/ovn_cluster_router.static_routes
`
	if diff := cmp.Diff(want, text(c.HostRows("Kube-Master", own))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	g := gateway(2)
	g.Rampout = prefixes("192.168.1.128/25")
	c = with(t, c, "gw2", g)
	want = `Logical_Router_Static_Route host/kube-master/10.1.1.1 ip_prefix="10.1.1.1" nexthop="192.168.1.2" in=Logical_Router/ovn_cluster_router.static_routes
Logical_Router_Policy host/kube-master/10.1.1.1 action="allow" match="ip4.dst == 10.1.1.1" priority=1001 in=Logical_Router/ovn_cluster_router.policies
`
	if diff := cmp.Diff(want, text(c.HostRows("kube-master", own[:1]))); diff != "" {
		t.Errorf("beside a pin by policy (-want +got):\n%s", diff)
	}
	if rows := c.HostRows("nobody", own); rows != nil {
		t.Errorf("a node without a switch: %v", rows)
	}
}
