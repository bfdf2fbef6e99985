package facts

import (
	"fmt"
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
