package main

import (
	"strings"
	"testing"

	"ovn-k8s/test/host"
)

func TestNodeRemove(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	const interfaces = "auto lo\niface lo inet loopback\n"
	n.write("/etc/network/interfaces", interfaces)
	m.init(masterInitArgs)
	untouched, rows := n.state(), w.rows("_uuid,name")
	n.init(minionInitArgs)

	// A pod of the node, in the database and plugged in.
	w.nb("lsp-add", "node2", "default_a", "--", "set", "Logical_Switch_Port", "default_a", "external_ids:pod=true", "external_ids:namespace=default")
	n.script("ovs-vsctl add-port br-int veth0 -- set Interface veth0 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_b")
	before := n.state()
	n.fails("node-remove --node-name=node2", "node node2 has pods: default/a, default/b: drain it first, or give --force")
	m.fails("node-remove --node-name=node2", "node node2 has pods: default/a: drain it first, or give --force")
	same(t, "host after a refusal", n.state(), before)
	w.nb("lsp-del", "default_a")
	n.fails("node-remove --node-name=node2", "node node2 has pods: default/b: drain it first")
	n.script("ovs-vsctl del-port veth0")

	// A pod of before a reboot left its row only.
	n.script("ovs-vsctl --no-wait add-port br-int veth9 -- set Interface veth9 external_ids:sandbox=c9 external_ids:iface-id=default_web-0; ovs-vsctl wait-until Interface veth9 ofport=-1")
	r := n.run("node-remove --node-name=Node2 --dry-run")
	for _, want := range []string{"- Logical_Switch node2", "remove /etc/cni/net.d/10-ovn-k8s.conflist", "write /etc/network/interfaces", "delete port veth9 from bridge br-int", "delete port k8s-node2 from bridge br-int"} {
		if r.Status != 0 || !strings.Contains(r.Out, want) {
			t.Errorf("no %q in a dry run: %+v", want, r)
		}
	}
	if got := n.run("node-remove --node-name=Node2"); got != (host.Result{Out: "Node node2 removed.\n"}) {
		t.Errorf("%+v", got)
	}
	same(t, "rows", w.rows("_uuid,name"), rows)
	same(t, "registry", w.nb("--if-exists", "get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-node-node2"), "")
	same(t, "interfaces", n.file("/etc/network/interfaces"), interfaces)
	same(t, "dead rows", n.script("ovs-vsctl --columns=name,external_ids --no-headings --format=csv list Interface | grep sandbox || true"), "")
	n.script("ovs-vsctl del-br br-int") // ovn-controller removes br-int in the end
	same(t, "host", n.state(), untouched)
	if got := n.run("node-remove --node-name=node2"); got != (host.Result{Out: "Node node2 was not there.\n"}) {
		t.Errorf("again: %+v", got)
	}

	// A node without its host is removed from another host.
	n.init(minionInitArgs)
	before = n.state()
	master := m.state()
	if got := m.run("node-remove --node-name=node2"); got != (host.Result{Out: "Node node2 removed.\n"}) {
		t.Errorf("from elsewhere: %+v", got)
	}
	same(t, "rows", w.rows("_uuid,name"), rows)
	same(t, "the node's host", n.state(), before)
	same(t, "the other host", m.state(), master)
	if got := n.run("node-remove --node-name=node2"); got != (host.Result{Out: "Node node2 removed.\n"}) {
		t.Errorf("what is left: %+v", got)
	}

	// By force.
	n.init(minionInitArgs)
	w.nb("lsp-add", "node2", "default_a", "--", "set", "Logical_Switch_Port", "default_a", "external_ids:pod=true", "external_ids:namespace=default")
	n.script("ovs-vsctl add-port br-int veth0 -- set Interface veth0 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_b")
	if got := n.run("node-remove --node-name=node2 --force"); got != (host.Result{Out: "Node node2 removed.\n"}) {
		t.Errorf("by force: %+v", got)
	}
	same(t, "rows", w.rows("_uuid,name"), rows)
	if got := n.script("ls /etc/cni/net.d /opt/cni/bin"); strings.Contains(got, "conflist") || !strings.Contains(got, "ovn-k8s-cni-overlay") {
		t.Errorf("the plugin must stay for the pod that does: %s", got)
	}
}

func TestNodeRemoveWithoutACluster(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.init(masterInitArgs)
	if err := w.central.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	if got := m.run("node-remove --node-name=kube-master"); got != (host.Result{Out: "Node kube-master removed.\n"}) {
		t.Errorf("%+v", got)
	}
	same(t, "rows", w.rows("name"), "")
	same(t, "interfaces", m.script("ip -br link | grep -c k8s- || true"), "0")
}
