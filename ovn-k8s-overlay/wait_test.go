package main

import (
	"strings"
	"testing"
)

// S2: with --wait, a refusal ends the command at once with its line. It waits only for late daemons and
// addresses.
func TestWaitDoesNotRepeatRefusals(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	refused := func(args, why string) {
		t.Helper()
		r, err := n.Try("PATH=$PATH:" + bin + " exec timeout 60 ovn-k8s-overlay " + args)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != 1 || strings.Count(r.Err, "\n") != 1 || !strings.Contains(r.Err, why) || strings.Contains(r.Err, "waiting") {
			t.Errorf("%s: %+v, want %q", args, r, why)
		}
	}
	const wait = " --wait"
	refused(strings.Replace(minionInitArgs, "192.168.2.0/24", "192.168.1.128/25", 1)+wait, "subnet 192.168.1.128/25 of node node2 overlaps subnet 192.168.1.0/24 of node kube-master")
	n.script("ovs-vsctl add-br br9 -- set bridge br9 datapath_type=$OVNK8S_TEST_DATAPATH -- add-port br9 k8s-node2 -- set interface k8s-node2 type=internal")
	refused(minionInitArgs+wait, "port k8s-node2 belongs to bridge br9 already")
}
