package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// H8, H11: pods of other nodes leave through another gateway while one cannot forward: a shared bridge without a
// helper, and a local gateway without forwarding. Logs and Events report it.
func TestAGatewayThatCannotForwardIsLeft(t *testing.T) {
	require.Nothing(t, require.Cluster, world.Missing())
	where := map[string]string{}
	for i := range 12 {
		where[fmt.Sprintf("p%d", i)] = "master"
	}
	list := slices.Collect(maps.Values(pods(t, where)))
	surround(t)
	n, other, ctx := cluster.Node("minion2"), cluster.Node("minion1"), context.WithoutCancel(t.Context())
	addGateway(t, other, world.Dedicated)
	one := func(seen map[netip.Addr][]string, silent []string) bool { return len(silent) == 0 && len(seen) == 1 }
	both := func(seen map[netip.Addr][]string, silent []string) bool { return len(silent) == 0 && len(seen) == 2 }
	show := func() string { // fails on standby
		return sh(t, cluster.Master(), "ovs-appctl -t "+watcher()+" gateway/show minion2 || :")
	}
	const down = "down, routes withdrawn: its host cannot forward packets: see"
	told := func(what string) {
		t.Helper()
		eventually(t, what+": gateway/show", func() bool { return strings.Contains(show(), down) })
		egress(t, list, failoverTime, what, one)
		if said := fmt.Sprint(cluster.Check(t.Context())); !strings.Contains(said, "! Gateway minion2: its host cannot forward packets") {
			t.Errorf("%s: --check says %s", what, said)
		}
	}
	addGateway(t, n, world.Shared)
	egress(t, list, patience, "both gateways are used", both)
	log := func() int {
		return strings.Count(sh(t, cluster.Master(), "cat "+logOf(watcher())), "|WARN|gateway minion2: "+down)
	}

	if !ovnkube() { // where helper and gateway are one process
		withoutHelper(t, n, told, log)
		egress(t, list, patience, "both gateways are used with a helper", both)
	}

	// A local gateway without forwarding: another one is used, unless it reports the same.
	if err := cluster.RemoveGateway(ctx, n); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AddGateway(ctx, n, world.Local); err != nil {
		t.Fatal(err)
	}
	egress(t, list, patience, "both gateways are used, one local", both)
	t.Cleanup(func() { sh(t, n, `! mountpoint -q /run/sys || umount /proc/sys/net /run/sys`) })
	sh(t, n, `mkdir -p /run/sys && mount --bind /proc/sys/net /run/sys && mount --bind /proc/sys/net /proc/sys/net && mount -o remount,bind,ro /proc/sys/net
		echo 0 >/run/sys/ipv4/ip_forward`)
	told("a local gateway without forwarding")
	if err := other.Kill(ctx, "/var/run/openvswitch/"+helper()+".pid"); err != nil { // it would report the true state
		t.Fatal(err)
	}
	sh(t, other, "ovs-vsctl set Open_vSwitch . external_ids:ovn-cms-options=ovn-k8s-gateway-down:physical")
	eventually(t, "both are used if both say so", func() bool { return strings.Contains(show(), "in use, since all are unhealthy: its host cannot") })
	if err := cluster.StartHelper(ctx, other); err != nil {
		t.Fatal(err)
	}
	told("the other one forwards")
	sh(t, n, "umount /proc/sys/net /run/sys; ovs-appctl -t "+helper()+" reconcile/resync")
	egress(t, list, patience, "both gateways are used again", both)
	consistent(t)
}

func addresses[T fmt.Stringer](list []T) string {
	var all []string
	for _, a := range list {
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}

// withoutHelper creates a gateway again while no helper runs. It is not used until a helper serves it.
func withoutHelper(t *testing.T, n *world.Node, told func(what string), log func() int) {
	t.Helper()
	ctx := t.Context()
	if err := cluster.RemoveGateway(ctx, n); err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(ctx, world.HelperPidfile); err != nil {
		t.Fatal(err)
	}
	before := log()
	if err := cluster.Do(ctx, n, "ovn-k8s-overlay", "gateway-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--node-name="+n.Name, "--bridge-interface=breth0",
		"--physical-ip="+addresses(n.Addresses), "--default-gw="+addresses(n.Gateways())); err != nil {
		t.Fatal(err)
	}
	told("a shared bridge without a helper")
	eventually(t, "the Node has an Event", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=minion2,reason=GatewayDown"})
		return err == nil && len(list.Items) > 0
	})
	if now := log() - before; now != 1 {
		t.Errorf("%d warnings in the log", now)
	}
	// The state survives a restart of the watcher and of ovn-controller.
	if err := cluster.KillWatcher(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartWatcher(ctx); err != nil {
		t.Fatal(err)
	}
	told("after a restart of the watcher")
	sh(t, n, "ovn-appctl -t ovn-controller exit --restart; for i in $(seq 300); do [ -e /var/run/ovn/ovn-controller.pid ] || exit 0; sleep 0.1; done; exit 1")
	if err := n.StartController(ctx, cluster.Central.SBTCP); err != nil {
		t.Fatal(err)
	}
	told("after a restart of ovn-controller")
	if err := cluster.StartHelper(ctx, n); err != nil {
		t.Fatal(err)
	}
}
