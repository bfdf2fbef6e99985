package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// A node with a gateway is removed, and set up again.
func TestNodeRemoveLeavesNothing(t *testing.T) {
	ofPrograms(t, "lib/ovnkube/node and lib/ovnkube/master")
	require.Nothing(t, require.Cluster, world.Missing())
	ctx, n := context.WithoutCancel(t.Context()), cluster.Node("minion2")
	before := state(t, n)
	do := func(args ...string) {
		t.Helper()
		if err := cluster.Do(ctx, n, "ovn-k8s-overlay", append(args, "--node-name="+n.Name)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range world.Modes() {
		if _, err := cluster.AddGateway(ctx, n, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// ovn-controller must not abort when its host's rows come back.
		do("minion-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--minion-switch-subnet="+n.Subnets)
		unchanged(t, "removed and made again", before, n)
	})
	for range 2 {
		if err := cluster.RemoveGateway(ctx, n); err != nil {
			t.Fatal(err)
		}
		do("node-remove")
	}
	ours := []string{n.Name, "OVN-K8S", "gw-", "10.128.2.", "lookup 1646", "table 1646", "proto 46", "br-nexthop", "cookie=0x6b38736777"}
	var left string
	eventually(t, "nothing of "+n.Name+" is left", func() bool {
		left = strings.Join(slices.DeleteFunc(state(t, n), func(l string) bool {
			return !slices.ContainsFunc(ours, func(trace string) bool { return strings.Contains(l, trace) })
		}), "\n")
		return left == ""
	}, &left)
}
