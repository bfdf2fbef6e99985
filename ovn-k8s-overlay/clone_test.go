package main

import (
	"strings"
	"testing"

	"ovn-k8s/test/host"
)

// A clone with a system-id and an address of its own takes neither the node nor the gateway of its original, and
// gives back only what it has itself.
func TestClone(t *testing.T) {
	w := newWorld(t, "master", "clone")
	m, n := w.nodes[0], w.nodes[1]
	m.setID("system-id", "host-m")
	n.setID("system-id", "host-n")
	sb := func(args ...string) {
		t.Helper()
		if _, err := w.central.SBCtl(args...); err != nil {
			t.Fatal(err)
		}
	}
	chassis := func(gateway string) string {
		t.Helper()
		record := w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-gateway-"+gateway)
		_, rest, _ := strings.Cut(record, `chassis\":\"`)
		id, _, _ := strings.Cut(rest, `\`)
		return id
	}
	const gateway = "gateway-init --cluster-ip-subnet=192.168.0.0/16 --local --node-name=Gw1"
	sb("chassis-add", "host-m", "geneve", "192.0.2.1")
	m.init(masterInitArgs)
	m.init(gateway)
	n.script(`ovs-vsctl --may-exist add-br br-int -- set Bridge br-int datapath_type=netdev
		ovs-vsctl add-port br-int k8s-kube-master -- set Interface k8s-kube-master type=internal external_ids:iface-id=k8s-kube-master
		ovs-vsctl add-port br-int gone -- set Interface gone external_ids:sandbox=c1 external_ids:iface-id=default_a || true`)
	rows, before := w.topology(), n.state()
	minion := strings.NewReplacer("master-init", "minion-init", "master-switch", "minion-switch").Replace(masterInitArgs)
	n.fails(minion, `node kube-master is the host with system-id host-m, which is registered in the Southbound database: give another --node-name, or if that host is no more run "ovn-sbctl chassis-del host-m" first`)
	n.fails(gateway, `gateway Gw1 is the host with system-id host-m, which is registered in the Southbound database: give another --node-name, or if that host is no more run "ovn-sbctl chassis-del host-m" first, or give --force`)
	same(t, "rows after refusals", w.topology(), rows)
	same(t, "the clone after refusals", n.state(), before)

	n.script("ovs-vsctl add-port br-int veth0 -- set Interface veth0 type=internal external_ids:sandbox=c2 external_ids:iface-id=default_b")
	n.fails("node-remove --node-name=kube-master", "node kube-master has pods: default/b: drain it first, or give --force")
	n.script("ovs-vsctl del-port veth0")
	const kept = "kube-master is the host with system-id host-m: it stays in the cluster, and only its part on this host is removed"
	if r := n.run("node-remove --node-name=kube-master --dry-run"); r.Status != 0 || strings.Contains(r.Out, "Northbound") || !strings.Contains(r.Out, "delete port k8s-kube-master") || !strings.Contains(r.Err, kept) {
		t.Errorf("%+v", r)
	}
	if r := n.run("node-remove --node-name=kube-master"); r.Out != "Node kube-master removed from this host.\n" || !strings.Contains(r.Err, kept) {
		t.Errorf("%+v", r)
	}
	same(t, "rows after node-remove", w.topology(), rows)
	same(t, "port", n.script("ovs-vsctl --bare --columns=name find Interface name=k8s-kube-master"), "")

	// By force the gateway goes to the other host; back, because that is not registered.
	if r := n.run(gateway + " --force"); r.Status != 0 || !strings.Contains(r.Err, "warning: gateway Gw1 is the host with system-id host-m") || chassis("Gw1") != "host-n" {
		t.Errorf("%s: %+v", chassis("Gw1"), r)
	}
	m.init(gateway)
	rows = w.topology()
	if r := n.run("gateway-remove --node-name=Gw1 --dry-run"); r.Status != 0 || strings.Contains(r.Out, "Northbound") || !strings.Contains(r.Err, "gateway Gw1 is the host with system-id host-m: it stays") {
		t.Errorf("%+v", r)
	}
	if r := n.run("gateway-remove --node-name=Gw1"); r.Out != "Gateway Gw1 removed from this host.\n" || !strings.Contains(r.Err, "gateway Gw1 is the host with system-id host-m: it stays") {
		t.Errorf("%+v", r)
	}
	same(t, "rows after gateway-remove", w.topology(), rows)

	// A host installed again has another system-id, and the address of its former chassis.
	m.setID("system-id", "host-new")
	m.fails(gateway, "gateway Gw1 is the host with system-id host-m")
	m.fails(masterInitArgs, "node kube-master is the host with system-id host-m")
	sb("chassis-del", "host-m")
	sb("chassis-add", "host-m", "geneve", m.IPv4().String())
	m.init(masterInitArgs)
	m.init(gateway)
	same(t, "the gateway's host", chassis("Gw1"), "host-new")
	same(t, "the node's host", w.get("Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-chassis-kube-master"), "host-new")
	if got := n.run("gateway-remove --node-name=Gw1"); got != (host.Result{Out: "Gateway Gw1 removed.\n"}) {
		t.Errorf("from a host without the gateway: %+v", got)
	}
}
