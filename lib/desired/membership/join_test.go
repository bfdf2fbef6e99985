package membership

import (
	"slices"
	"testing"

	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// Without a setting the join subnets are those of the record, or the default of a new cluster. The default as a setting is
// one as any other.
func TestJoinSubnets(t *testing.T) {
	ranges, err := nodesubnet.ParseRanges("10.0.0.0/16/24")
	if err != nil {
		t.Fatal(err)
	}
	const standard, own = "100.64.0.0/16", "100.65.0.0/16"
	for _, test := range []struct {
		record, setting, founded string
		refused                  bool // by Join and Add
	}{
		{"", "", standard, true}, {"", own, own, true}, {own, "", own, false}, {own, own, own, false},
		{own, standard + ",fd98::/64", standard, true}, {own, "fd98::/64", own, false}, {standard, own, own, true},
	} {
		var s State
		n := Network{Subnets: ranges.Subnets()}
		if test.setting != "" {
			if n.Join, err = ipnet.ParseSubnets(test.setting, 0); err != nil {
				t.Fatal(err)
			}
		}
		if test.record != "" {
			join, _ := ipnet.ParseSubnets(test.record, 0)
			c, _ := topology.New(names.ClusterRouter, n.Subnets, join)
			ids := c.Registry()
			ids[names.ID] = names.ClusterRouter
			if s, err = NewState([]nbdb.LogicalRouter{{Name: names.ClusterRouter, ExternalIDs: ids}}, nil, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, change := range []Change{
			Node{Network: n, Name: "n1", Pods: slices.Clone(ranges.Subnets())}.Found(nil), Numbering{Program: names.Ovnkube, Ranges: ranges, Join: n.Join}.Begin(),
		} {
			if c, err := change(s); err != nil || ipnet.Join(c.Join) != test.founded {
				t.Errorf("%+v: %v, %v", test, c.Join, err)
			}
		}
		if c, err := n.required(s); (err != nil) != test.refused || err == nil && ipnet.Join(c.Join) != test.record {
			t.Errorf("%+v of a node: %v, %v", test, c.Join, err)
		}
	}
}
