package topology

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ovn-k8s/lib/names"
)

// The rows can be computed from any values on the cluster router.
func TestOddRegistries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	subnets := []string{"", "banana", "10.0.0.0/8", "10.0.1.0/24", "10.0.1.0/31", "10.0.1.1/32", "255.255.255.255/32", "255.255.255.254/31", "fd00::/64", "fd00::1/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
		"10.0.1.0/24,fd00::/64", "10.0.1.0/32,fd00::/128", "0.0.0.0/0", "::/0", "0.0.0.0/0,::/0", "::ffff:10.0.0.0/104", "100.64.0.0/16", "fd98::/64", "100.64.0.0/16,fd98::/64", "100.64.0.0/32"}
	for range 20000 {
		registry := map[string]string{
			"ovn-k8s-router": pick("", names.ClusterRouter, "master"), names.ClusterSubnets: pick(subnets...), names.JoinSubnets: pick(subnets...),
		}
		for _, node := range []string{"n0", "N1", "join", "_", ""} {
			registry[names.NodePrefix+node] = pick(subnets...)
			registry[names.ChassisPrefix+node] = pick("", "a", "b")
			registry[names.GatewayPrefix+node] = fmt.Sprintf(`{"mode":%q,"interface":%q,"chassis":%q,"mac":%q,"ips":[%q],"nextHops":[%q],"rampout":[%q],"join":[%q],"vlan":%d,"node":%q}`,
				pick(Physical, Bridge, Local, "odd"), pick("", "eth1"), pick("", "a"), pick("", "02:00:00:00:00:01"), pick("", "192.0.2.1/24", "192.0.2.1/32", "2001:db8::1/64", "0.0.0.0/0"),
				pick("", "192.0.2.254", "fe80::1"), pick("", "10.0.1.0/24", "0.0.0.0/0", "fd00::/65"), pick("", "100.64.0.2", "fd98::2"), r.IntN(3)-1, pick("", "n0"))
		}
		c, _ := ReadRegistry(registry)
		text(c.Rows())
		for node := range c.Nodes {
			text(c.NodeRows(node))
			text(c.HostRows(node, nil))
		}
		for name := range c.Gateways {
			text(c.GatewayRows(name))
			text(c.GatewayRoutes(name))
		}
		if again, err := ReadRegistry(c.Registry()); c.Router != "" && (err != nil || !again.Equal(c)) {
			t.Fatalf("%v: %v is read as %v", err, c.Registry(), again.Registry())
		}
	}
}
