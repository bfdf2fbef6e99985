package main

import (
	"testing"

	"ovn-k8s/test/host"
)

// A host without the kernel's datapath is named before anything is changed, and so is the way out.
func TestAHostWithoutTheKernelsDatapath(t *testing.T) {
	host.OnUserspace(t)
	w := newWorld(t, "node1")
	n := w.nodes[0]
	n.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-bridge-datapath-type")
	before, transactions := n.state(), w.transactions()
	for _, args := range []string{masterInitArgs, minionInitArgs, masterInitArgs + " --dry-run", localGateway} {
		n.fails(args, host.Refusal())
	}
	same(t, "the host", n.state(), before)
	if now := w.transactions(); now != transactions {
		t.Errorf("%d transactions of the Northbound database", now-transactions)
	}
	n.setID("ovn-bridge-datapath-type", "netdev")
	n.init(masterInitArgs)
	n.init(localGateway)
}

const localGateway = "gateway-init --local --cluster-ip-subnet=192.168.0.0/16 --node-name=node1"
