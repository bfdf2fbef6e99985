package main

import (
	"strings"
	"testing"
)

// Gateways connect to all hosts from the join subnets of the cluster. Only master-init is told others than the default.
func TestOwnJoinSubnet(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	const (
		own      = " --join-subnet=100.99.0.0/16"
		standard = " --join-subnet=100.64.0.0/16,fd98::/64"
		ofMaster = "100.99.0.0/16 via 192.168.1.1 dev k8s-kube-master \n192.168.0.0/16 via 192.168.1.1 dev k8s-kube-master "
		ofNode   = "100.99.0.0/16 via 192.168.2.1 dev k8s-node2 \n192.168.0.0/16 via 192.168.2.1 dev k8s-node2 "
	)
	routes := func(n *node) string { n.t.Helper(); return n.script("ip route show proto 46") }
	n.script("ip link add other0 type veth peer other1 && ip link set other0 up && ip route add 100.64.0.0/16 dev other0")
	m.init(masterInitArgs + own)
	if r := n.init(minionInitArgs); strings.Contains(r.Err, "100.64.0.0") {
		t.Errorf("warnings of a subnet of others: %s", r.Err)
	}
	same(t, "routes of the master", routes(m), ofMaster)
	same(t, "routes of the node", routes(n), ofNode)
	m.init(masterInitArgs)
	same(t, "routes of the master after a restart of its unit", routes(m), ofMaster)
	n.fails(minionInitArgs+standard, "join-subnet is 100.64.0.0/16,fd98::/64, but the cluster's is 100.99.0.0/16: set the same, or none, or change it by master-init")
	n.fails(strings.Replace(localArgs, "gw3", "node2", 1)+standard, "but the cluster's is 100.99.0.0/16: set the same, or none, or change it by master-init")
	n.init(minionInitArgs + own)

	n.script("ip route flush proto 46")
	n.setID("ovn-nb", "tcp:127.0.0.1:1")
	if r := n.run(minionInitArgs); r.Status == 0 {
		t.Error("minion-init succeeded without a database")
	}
	same(t, "routes of the node without a database", routes(n), ofNode)
	n.setID("ovn-nb", w.central.NBTCP)

	// The default is a subnet as good as any, if it is given.
	m.init(masterInitArgs + standard)
	same(t, "record", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-join-subnets"), `"100.64.0.0/16"`)
	same(t, "routes of the master", routes(m), strings.ReplaceAll(ofMaster, "100.99", "100.64"))
	n.fails(minionInitArgs, "this host has a route 100.64.0.0/16 dev other0 already: delete it, or choose another subnet for pods")
	n.script("ip link delete other0")
	n.init(minionInitArgs)
	same(t, "routes of the node", routes(n), strings.ReplaceAll(ofNode, "100.99", "100.64"))
}
