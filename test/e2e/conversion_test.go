package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// initialize repeats the set-up commands of the network on all hosts, with other
// subnets. families is the number of documented subnets for each node.
func initialize(ctx context.Context, cluster4 string, families int) error {
	subnets := func(all string) string { return strings.Join(strings.Split(all, ",")[:families], ",") }
	clusters := subnets(cluster4 + "," + strings.Split(world.ClusterSubnets, ",")[1])
	m := cluster.Master()
	if err := cluster.Do(ctx, m, "ovn-k8s-overlay", "master-init", "--cluster-ip-subnet="+clusters,
		"--master-switch-subnet="+subnets(m.Subnets), "--node-name="+m.Name); err != nil {
		return err
	}
	for _, n := range cluster.Nodes {
		if err := cluster.Do(ctx, n, "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+clusters,
			"--minion-switch-subnet="+subnets(n.Subnets), "--node-name="+n.Name); err != nil {
			return err
		}
	}
	return nil
}

// T2, T3: changes of subnets, families, nodes and the database cut no stream of a
// running pod, or the command refuses them.
func TestStreamsSurviveConversions(t *testing.T) {
	ofPrograms(t, "lib/ovnkube/master")
	require.Nothing(t, require.Cluster, world.Missing())
	ctx := context.WithoutCancel(t.Context())
	cluster4 := strings.Split(world.ClusterSubnets, ",")[0]
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	restore := func() {
		if err := initialize(ctx, cluster4, 2); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	must(initialize(ctx, cluster4, 1))
	where := map[string]string{"client": "minion1"}
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		where[name] = "minion2"
	}
	p := pods(t, where)
	t.Cleanup(restore) // before they are removed
	var streams []*probe.Session
	for name, e := range p {
		if name == "client" {
			continue
		}
		if len(e.Addresses) != 1 {
			t.Fatalf("pod %s has %v", name, e.Addresses)
		}
		s, err := probe.OpenSession(t.Context(), p["client"].Netns, probe.Address(e.Addresses[0], kubelet.DefaultPort))
		must(err)
		t.Cleanup(func() { s.Close() })
		streams = append(streams, s)
	}
	alive := func(when string) {
		t.Helper()
		goOn(t, when, streams)
	}
	refused := func(when string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "default/") && !strings.Contains(err.Error(), "outside the cluster subnets") {
			t.Errorf("%s: %v", when, err)
		}
		alive(when)
	}
	n := cluster.Node("minion2")
	minion := func(args ...string) error {
		return cluster.Do(ctx, n, "ovn-k8s-overlay", append(args, "--node-name="+n.Name)...)
	}

	alive("the start")
	refused("another subnet", minion("minion-init", "--cluster-ip-subnet="+cluster4, "--minion-switch-subnet=10.128.99.0/24"))
	refused("a foreign cluster subnet", initialize(ctx, "10.200.0.0/14", 1))
	must(initialize(ctx, "10.128.0.0/13", 1))
	alive("a larger cluster subnet")
	must(initialize(ctx, cluster4, 1))
	alive("the former cluster subnet")

	must(initialize(ctx, cluster4, 2))
	eventually(t, "an Event on a pod says that it runs without the new family", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=AddressMismatch,involvedObject.name=a"})
		return err == nil && len(list.Items) > 0
	})
	alive("dual stack")
	_, err := cluster.Kube.CreatePod(ctx, "default", "dual", "minion2", func(p *corev1.Pod) {})
	must(err)
	where["dual"] = "minion2" // removed with the others
	wait, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dual, err := cluster.AwaitPod(wait, "default", "dual")
	must(err)
	if len(dual.Addresses) != 2 {
		t.Errorf("a new pod has %v", dual.Addresses)
	}
	refused("single stack under a pod with two addresses", initialize(ctx, cluster4, 1))
	must(cluster.Kube.Client().CoreV1().Pods("default").Delete(ctx, "dual", metav1.DeleteOptions{}))
	var why string
	eventually(t, "single stack again", func() bool {
		err := initialize(ctx, cluster4, 1)
		why = fmt.Sprint(err)
		return err == nil
	}, &why)
	alive("single stack again")

	refused("the removal of a node with pods", minion("node-remove"))
	must(minion("node-remove", "--force"))
	must(initialize(ctx, cluster4, 2))
	alive("a node's removal and return")

	cluster.Central.StopNB()
	must(cluster.Central.StartEmptyNB())
	alive("a rebuilt database")
}
