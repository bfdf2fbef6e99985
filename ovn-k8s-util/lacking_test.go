package main

import (
	"os"
	"testing"

	"ovn-k8s/test/host"
)

// A kernel without the module openvswitch is named before the NIC is touched.
func TestAKernelWithoutTheModule(t *testing.T) {
	n := newNode(t)
	if _, err := os.Stat("/sys/module/openvswitch"); err == nil || host.Datapath() == host.Kernel {
		t.Skip("the kernel has the module openvswitch")
	}
	n.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-bridge-datapath-type")
	before := n.state()
	r := n.run("nics-to-bridge eth0")
	const want = "ovn-k8s-util: this host's kernel lacks the module openvswitch, and br-int has the kernel's datapath: install the kernel's modules and run " +
		"\"modprobe openvswitch\", or set external_ids:ovn-bridge-datapath-type=netdev of Open_vSwitch for the userspace datapath\n"
	if r.Status != 1 || r.Out != "" || r.Err != want {
		t.Errorf("%+v, want %q", r, want)
	}
	n.unchanged("a refused move", before)
	n.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev")
	n.does("nics-to-bridge eth0")
}
