package topology

import (
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// several is a cluster with three subnets of IPv4 and two of IPv6.
func several(t *testing.T) Cluster {
	t.Helper()
	c, err := New(names.ClusterRouter, prefixes("10.128.0.0/14,10.0.0.0/16,10.1.0.0/16,fd01::/48,fd02::/48"), prefixes("100.64.0.0/16,fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A node has at most one subnet of each family, in any of the cluster's.
func TestNodesInSeveralSubnets(t *testing.T) {
	c := several(t)
	var err error
	for node, subnets := range map[string]string{"a": "10.1.3.0/24,fd01:0:0:1::/64", "b": "10.128.2.0/23,fd02:0:0:1::/64"} {
		if c, err = c.WithNode(node, prefixes(subnets)); err != nil {
			t.Fatal(err)
		}
	}
	for subnets, want := range map[string]string{
		"10.0.1.0/24,10.1.1.0/24":     "give one of each family in 10.128.0.0/14,10.0.0.0/16",
		"10.0.1.0/24":                 "give one of each family in",
		"10.3.0.0/24,fd01:0:0:9::/64": "outside the cluster subnets",
	} {
		if _, err := c.WithNode("c", prefixes(subnets)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", subnets, err, want)
		}
	}
	back, err := ReadRegistry(c.Registry())
	if err != nil || !back.Equal(c) {
		t.Errorf("%+v, %v; want %+v", back, err, c)
	}
	if _, err := c.Resize(c.Subnets[1:], c.Join); err == nil || !strings.Contains(err.Error(), "subnets 10.128.2.0/23,fd02:0:0:1::/64 of node b are outside") {
		t.Errorf("a subnet with a node was removed: %v", err)
	}
	more := slices.Insert(slices.Clone(c.Subnets), 3, prefixes("10.2.0.0/16")...)
	if grown, err := c.Resize(more, c.Join); err != nil || ipnet.Join(grown.Join) != "100.64.0.0/16,fd98::/64" || len(grown.Nodes) != 2 {
		t.Errorf("one more subnet: %+v, %v", grown, err)
	}
	if _, err := New("r", prefixes("10.0.0.0/16,10.0.1.0/24"), c.Join); err == nil || !strings.Contains(err.Error(), "cluster subnets 10.0.0.0/16 and 10.0.1.0/24 overlap") {
		t.Errorf("overlapping subnets: %v", err)
	}
}

// A gateway has a route and SNAT for each subnet, by the join subnet of its family.
func TestGatewayWithSeveralSubnets(t *testing.T) {
	g := gateway(2)
	g.IPs, g.NextHops = prefixes("192.0.2.2/24,2001:db8::2/64"), addrs("192.0.2.1,2001:db8::1")
	g.Rampout = prefixes("10.1.3.0/25")
	c := with(t, several(t), "gw", g)
	c, err := c.WithNode("a", prefixes("10.1.3.0/24,fd01:0:0:1::/64"))
	if err != nil {
		t.Fatal(err)
	}
	got := text(append(c.GatewayRows("gw"), c.GatewayRoutes("gw")...))
	for _, want := range []string{
		`ip_prefix="10.128.0.0/14" nexthop="100.64.0.1"`, `ip_prefix="10.0.0.0/16" nexthop="100.64.0.1"`, `ip_prefix="10.1.0.0/16" nexthop="100.64.0.1"`,
		`ip_prefix="fd01::/48" nexthop="fd98::1"`, `ip_prefix="fd02::/48" nexthop="fd98::1"`,
		`external_ip="192.0.2.2" logical_ip="10.128.0.0/14"`, `external_ip="192.0.2.2" logical_ip="10.1.0.0/16"`, `external_ip="2001:db8::2" logical_ip="fd02::/48"`,
		`(ip4.src == {10.128.0.0/14, 10.0.0.0/16, 10.1.0.0/16, 100.64.0.0/16} || ip6.src == {fd01::/48, fd02::/48, fd98::/64})`,
		`ip4.src == 10.1.3.0/25 && ip4.dst == {10.128.0.0/14, 10.0.0.0/16, 10.1.0.0/16, 100.64.0.0/16}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if routes := strings.Count(got, "Logical_Router_Static_Route GR_gw/"); routes != 7 {
		t.Errorf("%d routes of the gateway, want 5 into the cluster and 2 to the outside", routes)
	}
}
