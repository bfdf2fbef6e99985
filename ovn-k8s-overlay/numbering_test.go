package main

import (
	"strings"
	"testing"
)

// In a cluster with nodes numbered by ovnkube, no other subnets are accepted. A node that has its own already can repeat
// its command, as at boot.
func TestNodesNumberedByOvnkube(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	w.nb("set", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-numbered-by=ovnkube")
	m.init(masterInitArgs)
	same(t, "owner", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-numbered-by"), "ovnkube")
	host, rows := n.state(), w.rows("_uuid,name")
	n.fails(minionInitArgs, `ovnkube gives the nodes of this cluster their subnets: run "ovnkube -init-node=node2" on this host instead; `+
		`or if ovnkube is no more, run "ovn-nbctl remove Logical_Router ovn_cluster_router external_ids ovn-k8s-numbered-by" first`)
	same(t, "host after a refusal", n.state(), host)
	same(t, "rows after a refusal", w.rows("_uuid,name"), rows)
	m.fails("master-init --cluster-ip-subnet=192.168.0.0/17 --master-switch-subnet=192.168.1.0/24 --node-name=kube-master", "ovnkube gives the nodes of this cluster their subnets")
	w.nb("remove", "Logical_Router", "ovn_cluster_router", "external_ids", "ovn-k8s-numbered-by")
	n.init(minionInitArgs)

	// A gateway of a node is refused the same way, but for one that was there before.
	w.nb("set", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-numbered-by=ovnkube")
	gateway := strings.Replace(localArgs, "gw3", "node2", 1)
	host, rows = n.state(), w.topology()
	n.fails(gateway, `ovnkube gives the nodes of this cluster their gateways, as their hosts ask for: run "ovnkube -init-node=node2" on this host instead; `+
		`or if ovnkube is no more, run "ovn-nbctl remove Logical_Router ovn_cluster_router external_ids ovn-k8s-numbered-by" first`)
	same(t, "host after a refused gateway", n.state(), host)
	same(t, "rows after a refused gateway", w.topology(), rows)
	w.nb("remove", "Logical_Router", "ovn_cluster_router", "external_ids", "ovn-k8s-numbered-by")
	n.init(gateway)
	w.nb("set", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-numbered-by=ovnkube")
	n.init(gateway)
}

// A cluster that has more than one range of a family, from ovnkube, goes back to the commands.
func TestMoreRangesOfAFamily(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	w.nb("set", "Logical_Router", "ovn_cluster_router", `external_ids:ovn-k8s-cluster-subnets="192.168.0.0/16,10.77.0.0/16"`)
	more := func(args string) string {
		return strings.Replace(args, "--cluster-ip-subnet=192.168.0.0/16", "--cluster-ip-subnet=192.168.0.0/16,10.77.0.0/16", 1)
	}
	n.fails(minionInitArgs, "the cluster's is 192.168.0.0/16,10.77.0.0/16: give the same")
	n.init(more(minionInitArgs))
	n.init(more(strings.Replace(localArgs, "gw3", "node2", 1)))
	if got := n.script("ip route"); !strings.Contains(got, "192.168.0.0/16 via") || !strings.Contains(got, "10.77.0.0/16 via") {
		t.Errorf("routes:\n%s", got)
	}
	host, rows := n.state(), w.topology()
	n.init(more(minionInitArgs))
	same(t, "host", n.state(), host)
	same(t, "rows", w.topology(), rows)
}
