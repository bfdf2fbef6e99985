package membership

import (
	"fmt"
	"net/netip"
	"testing"

	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// A gateway in the record that does not fit in keeps no master from starting. The commands tell it.
func TestBeginWithAnUnfitGateway(t *testing.T) {
	ranges, err := nodesubnet.ParseRanges("10.0.0.0/16/24")
	if err != nil {
		t.Fatal(err)
	}
	join := []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}
	n := Numbering{Program: names.Ovnkube, Ranges: ranges, Join: join}
	c, err := n.Begin()(State{})
	if err != nil {
		t.Fatal(err)
	}
	g := topology.Gateway{Mode: topology.Bridge, Interface: "breth0", Chassis: "c1", MAC: "0a:58:c0:a8:02:03", IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	if c, err = c.WithGateway("n1", g); err != nil {
		t.Fatal(err)
	}
	ids := c.Registry()
	ids[names.ID], ids[names.GatewayPrefix+"n2"] = names.ClusterRouter, ids[names.GatewayPrefix+"n1"]
	s, err := NewState([]nbdb.LogicalRouter{{Name: names.ClusterRouter, ExternalIDs: ids}}, nil, nil, nil)
	if err != nil || s.Unfit() == nil {
		t.Fatalf("%v, unfit: %v", err, s.Unfit())
	}
	got, err := n.Begin()(s)
	if err != nil || !got.Equal(c) {
		t.Errorf("%+v, %v; want %+v", got, err, c)
	}
	if _, err := (Gateway{Network: Network{ranges.Subnets(), join}, Name: "n3", Gateway: g}).Add()(s); err == nil {
		t.Error("gateway-init does not tell it")
	}
}

// While a program takes the gateways of nodes from their hosts, gateway-init adds and changes none of these: that would be
// undone. It restores one that the record has.
func TestGatewaysOfANumberedCluster(t *testing.T) {
	network := Network{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}}
	c, err := topology.New(names.ClusterRouter, network.Subnets, network.Join)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"n1", "n2"} {
		if c, err = c.WithNode(name, []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i))}); err != nil {
			t.Fatal(err)
		}
	}
	gateway := func(name, ip string) Gateway {
		return Gateway{network, name, topology.Gateway{Mode: topology.Bridge, Interface: "breth0", Chassis: "c-" + name, MAC: "0a:58:c0:a8:02:03", IPs: []netip.Prefix{netip.MustParsePrefix(ip)}}}
	}
	there := gateway("N1", "192.0.2.1/24")
	if c, err = c.WithGateway(there.Name, there.Gateway); err != nil {
		t.Fatal(err)
	}
	other, grown := there, there
	other.Gateway.VLAN, grown.Gateway.MAC, grown.Gateway.MTU = 7, "0a:58:c0:a8:02:04", 1400
	for _, program := range []string{"", names.Ovnkube} {
		c.NumberedBy = program
		ids := c.Registry()
		ids[names.ID] = names.ClusterRouter
		s, err := NewState([]nbdb.LogicalRouter{{Name: names.ClusterRouter, ExternalIDs: ids}}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, test := range map[string]struct {
			Gateway
			refused bool
		}{
			"one that was taken back": {gateway("n2", "192.0.2.2/24"), true}, "other options": {other, true},
			"the same": {there, false}, "another MAC and MTU": {grown, false}, "a host that is no node": {gateway("outer", "192.0.2.9/24"), false},
		} {
			want := ""
			if test.refused && program != "" {
				want = `ovnkube gives the nodes of this cluster their gateways, as their hosts ask for: run "ovnkube -init-node=` + names.NodeSwitch(test.Name) + `" on this host instead; ` +
					`or if ovnkube is no more, run "ovn-nbctl remove Logical_Router ovn_cluster_router external_ids ovn-k8s-numbered-by" first`
			}
			if _, err := test.Add()(s); err == nil && want != "" || err != nil && err.Error() != want {
				t.Errorf("%s, numbered by %q: error %v, want %q", what, program, err, want)
			}
		}
	}
}
