package main

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubetest"
)

// nodes has Nodes of a test, and their subnets.
type nodes struct {
	*host
	cluster *kubetest.Cluster
}

// newNodes begins without Nodes, and leaves no copy of the topology to later tests.
func newNodes(t *testing.T) nodes {
	n := nodes{newHost(t), startCluster(t)}
	t.Cleanup(func() { forget(n.cluster) }) // after ovnkube has ended
	return n
}

// forget deletes the copy of the topology: a master would restore an empty database from it.
func forget(cluster *kubetest.Cluster) {
	_ = cluster.Client().CoreV1().ConfigMaps("ovn-kubernetes").Delete(context.Background(), names.TopologyConfigMap, metav1.DeleteOptions{})
}

func (n nodes) create(name string) {
	n.Helper()
	if _, err := n.cluster.CreateNode(n.Context(), name); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { n.delete(name) })
}

func (n nodes) delete(name string) {
	_ = n.cluster.Client().CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
}

// subnet waits for the subnet of a Node.
func (n nodes) subnet(name string) (subnet string) {
	n.Helper()
	n.eventually("Node "+name+" has a subnet", func() bool {
		node, err := n.cluster.Client().CoreV1().Nodes().Get(n.Context(), name, metav1.GetOptions{})
		if err != nil {
			n.Fatal(err)
		}
		subnet = node.Annotations[names.HostSubnetAnnotation]
		return subnet != ""
	})
	return subnet
}

// ranges writes the file with ranges and other lines.
func (n nodes) ranges(ranges string, more ...string) {
	n.Helper()
	n.write("etc/openvswitch/ovn_k8s.conf", strings.Join(append([]string{"[default]", "cluster-subnets=" + ranges}, more...), "\n")+"\n")
}

// Ranges that lack the subnets of nodes, in the file of a running master: it goes on with the former ones over the same
// connection, and uses the new ones when these nodes are gone.
func TestRangesWithoutNodesInTheFile(t *testing.T) {
	n := newNodes(t)
	central := n.startCentral()
	n.ranges("10.1.0.0/16/24,10.2.0.0/16/24")
	p := n.start(strings.Fields("-init-master=n1 -k8s-kubeconfig=" + n.cluster.Kubeconfig + " -nb-address=" + central.NBTCP + " -sb-address=" + central.SBTCP))
	n.create("a")
	if got := n.subnet("a"); got != "10.1.0.0/24" {
		t.Fatalf("Node a has %s", got)
	}
	n.ranges("10.2.0.0/16/24")
	p.says("keeping the former configuration: ")
	n.create("b")
	if got := n.subnet("b"); got != "10.1.1.0/24" {
		t.Errorf("Node b has %s", got)
	}
	if out := p.out.String(); strings.Contains(out, "starting anew") || strings.Contains(out, "trying again") {
		t.Error("the master was started again")
	}
	n.delete("a")
	n.delete("b")
	p.says(`setting cluster-subnets: now "10.2.0.0/16/24"`)
	n.create("c")
	if got := n.subnet("c"); got != "10.2.0.0/24" {
		t.Errorf("Node c has %s", got)
	}
	if got := strings.Count(p.out.String(), "keeping the former configuration: "); got != 1 {
		t.Errorf("%d lines about the settings", got)
	}
}

// Without its database the master cannot judge ranges refused before: they stay unused. Other credentials are used.
func TestRefusedRangesWithoutTheDatabase(t *testing.T) {
	n := newNodes(t)
	central := n.startCentral()
	n.ranges("10.1.0.0/16/24,10.2.0.0/16/24")
	p := n.start(strings.Fields("-init-master=n1 -k8s-kubeconfig=" + n.cluster.Kubeconfig + " -nb-address=" + central.NBTCP + " -sb-address=" + central.SBTCP))
	n.create("a")
	n.subnet("a")
	n.ranges("10.2.0.0/16/24")
	p.says("keeping the former configuration: ")
	central.StopNB()
	p.says("lost the connection to NB")
	n.ranges("10.2.0.0/16/24", "k8s_ca_certificate=/none")
	p.says("setting k8s-ca-certificate: now")
	if err := central.StartNB(); err != nil {
		t.Fatal(err)
	}
	n.create("b")
	if got := n.subnet("b"); got != "10.1.1.0/24" {
		t.Errorf("Node b has %s", got)
	}
}
