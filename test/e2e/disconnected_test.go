package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conf.db restored from a backup: a running pod whose interface is not in it has no network. An Event says to delete it.
func TestAPodWithoutItsInterfaceIsTold(t *testing.T) {
	pods(t, map[string]string{"web-0": "minion2"})
	n := cluster.Node("minion2")
	iface := strings.TrimSpace(sh(t, n, "ovs-vsctl --bare --columns=name find Interface external_ids:iface-id=default_web-0"))
	sh(t, n, "ovs-vsctl remove Interface "+iface+" external_ids iface-id")
	restore := func() { sh(t, n, "ovs-vsctl set Interface "+iface+" external_ids:iface-id=default_web-0") }
	restored := false
	t.Cleanup(func() {
		if !restored {
			restore()
		}
	})
	const want = "pod default/web-0 runs, but Open vSwitch of node minion2 has no interface for its logical port"
	var check string
	eventually(t, "--check names the pod", func() bool {
		check = fmt.Sprint(cluster.Check(t.Context()))
		return strings.Contains(check, "! pod/default/web-0: "+want)
	}, &check)
	var events string
	eventually(t, "an Event on the pod", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web-0"})
		if err != nil {
			t.Fatal(err)
		}
		events = ""
		for _, e := range list.Items {
			events += e.Reason + ": " + e.Message + "\n"
		}
		return strings.Contains(events, "NoInterface: "+want)
	}, &events)
	restore()
	restored = true
	consistent(t)
}
