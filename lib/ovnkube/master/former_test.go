package master_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/names"
)

// A cluster that went back to the commands is taken over a second time: claims of the time before change no gateway that
// gateway-init has made since. Those of hosts that run ovnkube count.
func TestTakingOverASecondTime(t *testing.T) {
	const ranges = "10.0.0.0/16/24"
	n := newNetwork(t)
	m := n.start(ranges, false)
	none := func(name string, i int) map[string]string {
		return nodeclaim.Claim{Chassis: fmt.Sprintf("chassis-%d", i)}.Annotations(name)
	}
	for i, name := range []string{"a", "b", "c"} {
		n.node(name, func(o *corev1.Node) { o.Annotations = claim(name, i+1) })
		eventually(t, "the gateway "+name, func() bool { return n.find("Logical_Router", "name", "name=GR_"+name) != "" })
	}
	m.stop()
	// The hosts went back: a and b by a clean-up, c without. gateway-init made c's gateway with another MAC.
	n.annotate("a", none("a", 1))
	n.annotate("b", none("b", 2))
	key := names.GatewayPrefix + "c"
	text := strings.Replace(n.nbctl("get", "Logical_Router", names.ClusterRouter, "external_ids:"+key), "0a:58:c0:00:02:03", "0a:58:c0:00:02:77", 1)
	n.nbctl("set", "Logical_Router", names.ClusterRouter, "external_ids:"+key+"="+text)
	n.nbctl("remove", "Logical_Router", names.ClusterRouter, "external_ids", names.NumberedBy)
	gateways := func() string {
		return n.find("Logical_Router", "name", `name!=`+names.ClusterRouter) + " " + n.find("Logical_Router_Port", "mac", "name=rtoe-GR_c")
	}
	m = n.start(ranges, true)
	n.node("probe", nil)
	n.awaitSubnet("probe", "") // all Nodes were looked at
	eventually(t, "the MAC of gateway-init", func() bool { return strings.Contains(gateways(), "0a:58:c0:00:02:77") })
	for _, name := range []string{"a", "b", "c"} {
		if got := n.find("Logical_Router", "name", "name=GR_"+name); got == "" {
			t.Errorf("gateway %s is gone", name)
		}
		node, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		for _, key := range []string{names.ChassisAnnotation, names.GatewayAnnotation} {
			if got, ok := node.Annotations[key]; ok {
				t.Errorf("Node %s has annotation %s=%s", name, key, got)
			}
		}
	}
	n.annotate("a", none("a", 1))
	eventually(t, "a's gateway is gone", func() bool { return n.find("Logical_Router", "name", "name=GR_a") == "" })
	m.stop()
	n.start(ranges, true) // which takes nothing over any more
	n.node("probe2", nil)
	n.awaitSubnet("probe2", "")
	node, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	must(t, err)
	if got := node.Annotations; got[names.ChassisAnnotation] != "chassis-1" {
		t.Errorf("a has lost its claim: %v", got)
	}
}

// The database was emptied before the takeover: the copy of the watcher is in another namespace. No new cluster is made, no Node
// gets a subnet, and nothing is accepted, so that the node's role of the same process leaves the host as it is.
func TestTakingOverAnEmptiedDatabase(t *testing.T) {
	n := newNetwork(t)
	n.node("a", nil)
	const want = "there is no cluster to take over: the Northbound database has no cluster router, and the ConfigMap ovn-kubernetes/ovn-k8s-topology is missing: " +
		"if the database was emptied, stop ovnkube, and let ovn-k8s-watcher run until there is one, as it has its own copy; for a new cluster remove --adopt"
	if got := n.check("10.0.0.0/16/24", true); got != want {
		t.Errorf("check: %s", got)
	}
	if got := n.check("10.0.0.0/16/24", false); got != "! the Northbound database has no cluster router, and there is no copy of one: does a master run?\n" {
		t.Errorf("check without --adopt: %s", got)
	}
	refused := n.start("10.0.0.0/16/24", true)
	eventually(t, "a line in the log: "+want, func() bool { return n.log.count(want) > 0 })
	refused.stop()
	token := n.flags["k8s-api-token-file"]
	n.flags["k8s-api-token-file"] = filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(n.flags["k8s-api-token-file"], []byte("wrong"), 0o600))
	refused = n.start("10.0.0.0/16/24", true)
	const unread = "looking for the copy of a cluster to take over: "
	eventually(t, "a line in the log: "+unread, func() bool { return n.log.count(unread) > 0 })
	refused.stop()
	n.flags["k8s-api-token-file"] = token
	if got := n.find("Logical_Router", "name") + n.subnet("a"); got != "" {
		t.Errorf("there is %s", got)
	}
	if n.accepted.Load() {
		t.Error("the cluster was accepted")
	}
	m := n.start("10.0.0.0/16/24", false)
	n.awaitSubnet("a", "")
	if !n.accepted.Load() {
		t.Error("the cluster was not accepted")
	}
	n.restartWritesNothing(m, "10.0.0.0/16/24").stop()
	// A cluster of ovnkube itself is restored as ever.
	n.central.StopNB()
	must(t, n.central.StartEmptyNB())
	n.start("10.0.0.0/16/24", true)
	n.node("b", nil)
	n.awaitSubnet("b", "")
}
