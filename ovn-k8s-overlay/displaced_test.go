package main

import (
	"strings"
	"testing"
)

// T2: a command refuses to take addresses away from running pods before anything is changed, and names them;
// --force warns of the pods disconnected.
func TestSubnetsOfRunningPods(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	n.init(minionInitArgs)
	for _, p := range []struct{ node, name, addresses string }{
		{"node2", "default_a", "0a:58:c0:a8:02:03 192.168.2.3"}, {"node2", "default_b", "0a:58:c0:a8:02:04 192.168.2.4"},
		{"kube-master", "default_m", "0a:58:c0:a8:01:03 192.168.1.3"},
	} {
		w.nb("lsp-add", p.node, p.name, "--", "lsp-set-addresses", p.name, p.addresses,
			"--", "set", "Logical_Switch_Port", p.name, "external_ids:pod=true", "external_ids:namespace=default")
	}
	refused := func(n *node, args, why string) {
		t.Helper()
		host, rows := n.state(), w.rows("_uuid,name,external_ids")
		n.fails(args, why)
		n.fails(args+" --dry-run", why)
		same(t, "host after a refusal", n.state(), host)
		same(t, "rows after a refusal", w.rows("_uuid,name,external_ids"), rows)
	}
	const both = "running pods have addresses outside of the subnets given: default/a, default/b: give the subnets as they were"
	refused(n, "minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.9.0/24 --node-name=node2", both)
	refused(m, "minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.8.0/24 --node-name=kube-master", "running pods have addresses")
	refused(m, "master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.8.0/24 --node-name=kube-master", "default/m")
	// A larger subnet, and the same again, displace no pod.
	n.init(minionInitArgs)
	n.init("minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.2.0/23 --node-name=node2")

	// T3: to dual stack, node by node, and back.
	const dual = "--cluster-ip-subnet=192.168.0.0/16,fd01::/48"
	m.init("master-init " + dual + " --master-switch-subnet=192.168.1.0/24,fd01:0:0:1::/64 --node-name=kube-master")
	if got := n.run(minionInitArgs); !strings.Contains(got.Err, "--cluster-ip-subnet is 192.168.0.0/16, but the cluster's is 192.168.0.0/16,fd01::/48") {
		t.Errorf("the old subnets: %+v", got)
	}
	n.init("minion-init " + dual + " --minion-switch-subnet=192.168.2.0/24,fd01:0:0:2::/64 --node-name=node2")
	single := strings.Replace(masterInitArgs, "Kube-Master", "kube-master", 1)
	// Pod a, running without the address assigned later, loses nothing.
	w.nb("lsp-set-addresses", "default_a", "0a:58:c0:a8:02:03 192.168.2.3 fd01:0:0:2::3", "--", "set", "Logical_Switch_Port", "default_a", "external_ids:ovn-k8s-pod-ips=192.168.2.3")
	w.nb("lsp-set-addresses", "default_b", "0a:58:c0:a8:02:04 192.168.2.4 fd01:0:0:2::4")
	refused(m, single, "running pods have addresses outside of the subnets given: default/b: ")
	if got := m.run(single + " --force"); got.Status != 0 || !strings.Contains(got.Err, "pods lost addresses, and with them their connections: default/b: delete these pods") {
		t.Errorf("by force: %+v", got)
	}
	n.init(minionInitArgs)
	same(t, "record", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-node-node2"), `"192.168.2.0/24"`)

	// A pod still running after its node's removal.
	n.script("ovs-vsctl add-port br-int veth0 -- set Interface veth0 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_b external_ids:ip_address=192.168.2.4/24")
	if got := n.run("node-remove --node-name=node2 --force"); got.Status != 0 {
		t.Fatalf("%+v", got)
	}
	refused(n, "minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.9.0/24 --node-name=node2", "running pods have addresses outside of the subnets given: default/b")
	n.init(minionInitArgs)
}
