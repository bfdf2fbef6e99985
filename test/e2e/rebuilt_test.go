package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// T2: streams of both families, between pods and from pods to the outside, survive the removal of a node, a database
// emptied while the watcher runs, and one rebuilt while no watcher runs, as in debugging.md; the last also streams from
// outside to a NodePort. One pod has the interface of an older release then. TestMain checks that no ovn-controller aborted.
func TestStreamsSurviveRebuiltDatabases(t *testing.T) {
	require.Nothing(t, require.Cluster, world.Missing())
	ctx := context.WithoutCancel(t.Context())
	p := pods(t, map[string]string{"client": "minion1", "web-0": "minion2"})
	around := surround(t)
	gateway := cluster.Node("minion1")
	seen, err := cluster.AddGateway(ctx, gateway, world.Dedicated) // without the comparison of addGateway: new rows have no ovn-k8s-next
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.RemoveGateway(ctx, gateway); err != nil {
			t.Error(err)
		}
	})
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	var streams []*probe.Session
	open := func(from world.Endpoint, to probe.Probe) {
		t.Helper()
		to.Netns, to.Network = from.Netns, "tcp"
		wait, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := to.Until(wait); err != nil {
			t.Fatal(err)
		}
		session, err := to.Open(wait)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
		streams = append(streams, session)
	}
	for i, a := range p["web-0"].Addresses {
		open(p["client"], probe.Probe{Address: probe.Address(a, kubelet.DefaultPort)})
		open(p["web-0"], probe.Probe{Address: probe.Address(around.Outside.Addresses[i], sessionPort)})
	}
	alive := func(when string) {
		t.Helper()
		goOn(t, when, streams)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	alive("the start")
	if n := cluster.Node("minion2"); !ovnkube() {
		must(cluster.Do(ctx, n, "ovn-k8s-overlay", "node-remove", "--node-name="+n.Name, "--force"))
		must(cluster.Do(ctx, n, "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--minion-switch-subnet="+n.Subnets, "--node-name="+n.Name))
		consistent(t)
		alive("a node's removal and return")
	}

	cluster.Central.StopNB()
	must(cluster.Central.StartEmptyNB())
	consistent(t)
	alive("an emptied database")

	for _, d := range nodePortsAt(s, seen) {
		if d.network == "tcp" {
			open(around.Outside, probe.Probe{Address: d.at})
		}
	}
	alive("new streams from outside")
	northd := func(command string) {
		t.Helper()
		sh(t, cluster.Master(), "ovn-appctl -t "+filepath.Join(cluster.Central.Dir, "ovn-northd.ctl")+" "+command)
	}
	// The zones of conntrack: with other ones, connections with NAT would wait for a packet from inside.
	zones := func() (all []string) {
		for _, n := range cluster.Nodes {
			all = append(all, n.Name+": "+sh(t, n, "ovs-vsctl get Bridge br-int external_ids"))
		}
		return all
	}
	before := zones()
	must(cluster.KillWatcher(ctx))
	_, err = cluster.Central.NBCtl("remove", "Logical_Switch_Port", "default_client", "options", names.IfaceIDVer)
	must(err)
	eventually(t, "the client's port takes any interface", func() bool {
		options, err := cluster.Central.SBCtl("--bare", "--columns=options", "find", "Port_Binding", "logical_port=default_client")
		return err == nil && !strings.Contains(options, names.IfaceIDVer)
	})
	sh(t, gateway, "ovs-vsctl remove Interface $(ovs-vsctl --bare --columns=_uuid find Interface external_ids:iface-id=default_client) external_ids "+names.IfaceIDVer)
	northd("pause")
	cluster.Central.StopNB()
	must(cluster.Central.StartEmptyNB())
	must(cluster.StartWatcher(ctx))
	consistent(t)
	northd("resume")
	consistent(t)
	after := zones()
	_, err = cluster.Kube.CreatePod(ctx, "default", "later", "minion1", nil)
	must(err)
	_, err = cluster.AwaitPod(t.Context(), "default", "later") // then ovn-controller there has all rows
	must(err)
	must(cluster.Kube.Client().CoreV1().Pods("default").Delete(ctx, "later", metav1.DeleteOptions{}))
	alive("a database rebuilt while no watcher ran")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("zones of conntrack after a database rebuilt while no watcher ran (-before +after):\n%s", diff)
	}
}
