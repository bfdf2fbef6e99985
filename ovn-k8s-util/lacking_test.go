package main

import (
	"testing"

	"ovn-k8s/test/host"
)

// A host without the kernel's datapath is named before the NIC is touched.
func TestAHostWithoutTheKernelsDatapath(t *testing.T) {
	host.OnUserspace(t)
	n := newNode(t)
	n.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-bridge-datapath-type")
	before := n.state()
	r := n.run("nics-to-bridge eth0")
	want := "ovn-k8s-util: " + host.Refusal() + "\n"
	if r.Status != 1 || r.Out != "" || r.Err != want {
		t.Errorf("%+v, want %q", r, want)
	}
	n.unchanged("a refused move", before)
	n.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev")
	n.does("nics-to-bridge eth0")
}

// Root without a capability, as in a container, is told so before the NIC is touched.
func TestRootWithoutAPermission(t *testing.T) {
	n := newNode(t)
	before := n.state()
	r, err := n.Try("exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin " + bin + "/ovn-k8s-util nics-to-bridge eth0")
	if err != nil {
		t.Fatal(err)
	}
	const want = "ovn-k8s-util: this needs the capability CAP_NET_ADMIN, because it works on interfaces and routes of the host: run it outside of this container, or give the container that capability and the host's network\n"
	if r.Status != 1 || r.Out != "" || r.Err != want {
		t.Errorf("%+v, want %q", r, want)
	}
	n.unchanged("a refused move", before)
}
