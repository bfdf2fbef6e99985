package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/host"
)

// A database that does not answer delays rules by a second of each check at most: another program changes
// its rules and a link, so that both are checked, and then a Service gets its rules. The Event about a firewall that drops packets
// tells only of that.
func TestRulesBesideASilentDatabase(t *testing.T) {
	w := newWorld(t)
	w.start()
	database := func(signal string) {
		w.Helper()
		w.script("kill -" + signal + " $(cat /var/run/openvswitch/ovsdb-server.pid)")
	}
	database("STOP")
	w.script("nft add table ip foreign; ip link add other type veth peer name end")
	for _, part := range []string{"firewall", "mtu"} {
		w.eventually("the check "+part+" ends", func() bool {
			for line := range strings.Lines(w.appctl("reconcile/show")) {
				if strings.Contains(line, part+" fails") && strings.Contains(line, "no answer from Open vSwitch's database within 1s: is ovsdb-server running?") {
					return true
				}
			}
			return false
		})
	}
	w.endpoints(w.service("web", nil), 8080, "10.128.1.3@node1")
	w.eventually("rules", func() bool { return strings.Contains(w.script(host.RulesScript), "30082") })
	database("CONT")
	w.eventually("all is well again", func() bool { return !strings.Contains(w.appctl("reconcile/show"), "fails") })
	w.script(localGateway + "; nft 'add table inet silent; add chain inet silent pods { type filter hook forward priority 10; policy drop; }'")
	w.eventually("an Event about packets that are dropped", func() bool {
		events, err := cluster.Client().CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "reason=FirewallDrops"})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range events.Items {
			found = found || strings.Contains(e.Message, "inet silent")
			if strings.Contains(e.Message, "database") {
				t.Fatalf("an Event on node %s: %s", e.InvolvedObject.Name, e.Message)
			}
		}
		return found
	})
}
