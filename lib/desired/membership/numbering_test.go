package membership

import (
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
