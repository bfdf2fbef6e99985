package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// A stopped ovn-controller and a stopped ovn-northd are reported: in the log, by an Event, by --check, node/show and
// gateway/show (section 5 of the findings).
func TestTheOperatorIsTold(t *testing.T) {
	require.Nothing(t, require.Cluster, world.Missing())
	n, master := cluster.Node("minion2"), cluster.Master()
	if _, err := cluster.AddGateway(t.Context(), n, world.Local); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.RemoveGateway(context.Background(), n); err != nil {
			t.Error(err)
		}
	})
	show := func(command string) string { return sh(t, master, "ovs-appctl -t "+watcher()+" "+command) }
	checked := func(what string) {
		t.Helper()
		var said string
		eventually(t, "--check says "+what, func() bool {
			said = fmt.Sprint(cluster.Check(t.Context()))
			return strings.Contains(said, what)
		}, &said)
	}
	if out := show("gateway/show"); !strings.Contains(out, "in use") || !strings.Contains(out, "local") {
		t.Errorf("gateway/show: %s", out)
	}
	restart := func() {
		if err := n.StartController(context.Background(), cluster.Central.SBTCP); err != nil {
			t.Error(err)
		}
	}
	sh(t, n, "ovn-appctl -t ovn-controller exit")
	checked("! Node minion2: chassis minion2 is not in the Southbound database: check ovn-controller there")
	for _, s := range []struct{ command, want string }{{"node/show minion2", "no "}, {"gateway/show minion2", "in use, since all are unhealthy: chassis minion2 is not in"}} {
		if out := show(s.command); !strings.Contains(out, s.want) {
			t.Errorf("%s: %s", s.command, out)
		}
	}
	if log := sh(t, master, "cat "+logOf(watcher())); !strings.Contains(log, "|WARN|node minion2: chassis minion2 is not in the Southbound database") {
		t.Errorf("the log does not name the node")
	}
	eventually(t, "the Node has an Event", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=minion2,reason=ChassisNotRegistered"})
		return err == nil && len(list.Items) > 0
	})
	restart()
	consistent(t)
	if out := show("node/show minion2"); !strings.Contains(out, "yes ") {
		t.Errorf("node/show: %s", out)
	}
	cluster.Central.StopNorthd()
	t.Cleanup(func() { // before the pods go
		if err := cluster.Central.StartNorthd(); err != nil {
			t.Error(err)
		}
	})
	if _, err := cluster.Kube.CreatePod(t.Context(), "default", "late", "minion1", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, map[string]string{"late": "minion1"}) })
	checked("! logical ports of pods without a Port_Binding in the Southbound database: 1, default_late first: check ovn-northd")
	if err := cluster.Central.StartNorthd(); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AwaitPod(t.Context(), "default", "late"); err != nil {
		t.Fatal(err)
	}
}
