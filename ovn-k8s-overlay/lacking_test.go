package main

import (
	"os"
	"testing"

	"ovn-k8s/test/host"
)

// withoutModule gives br-int the kernel's datapath. The test is for machines without the module openvswitch.
func (n *node) withoutModule() {
	n.t.Helper()
	if _, err := os.Stat("/sys/module/openvswitch"); err == nil || host.Datapath() == host.Kernel {
		n.t.Skip("the kernel has the module openvswitch")
	}
	n.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-bridge-datapath-type")
}

// A kernel without the module openvswitch is named before anything is changed, and so is the way out.
func TestAKernelWithoutTheModule(t *testing.T) {
	w := newWorld(t, "node1")
	n := w.nodes[0]
	n.withoutModule()
	before, transactions := n.state(), w.transactions()
	const missing = `this host's kernel lacks the module openvswitch, and br-int has the kernel's datapath: install the kernel's modules and run "modprobe openvswitch", or set external_ids:ovn-bridge-datapath-type=netdev of Open_vSwitch for the userspace datapath`
	for _, args := range []string{masterInitArgs, minionInitArgs, masterInitArgs + " --dry-run", localGateway} {
		n.fails(args, missing)
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
