package ovnkube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/world"
)

// A damage is done by hand while ovnkube does not run: it would repair most kinds.
type damage struct {
	node    string
	command []string
	says    string // in a line of ovnkube check on the node
}

// ovnkube check finds nothing in a cluster with pods, a Service and gateways, names each kind of damage, and finds nothing again
// after ovnkube has repaired it all.
func TestCheckNamesDamage(t *testing.T) {
	c := newCluster(t, world.Options{Minions: 1})
	c.run()
	node := c.Node("minion1")
	for mode, n := range map[string]*world.Node{world.Local: c.Master(), world.Shared: node} {
		_, err := c.AddGateway(c.ctx, n, mode)
		c.must(err)
	}
	_, err := c.Kube.CreatePod(c.ctx, "default", "web", node.Name, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: "web"} })
	c.must(err)
	c.await("web")
	_, err = c.CreateService(c.ctx, "web", kubelet.DefaultPort, 1, nil)
	c.must(err)
	clean := func(when string) {
		t.Helper()
		for _, n := range c.Nodes {
			c.eventually(when, func() error { return c.CheckOVNKube(c.ctx, n) })
		}
	}
	clean("at first")
	for _, n := range c.Nodes {
		c.must(n.Kill(c.ctx, world.OVNKubePidfile))
		if lines := c.found(n); len(lines) != 1 || lines[0] != "! nothing serves CNI requests of this host: start ovnkube" {
			t.Errorf("%s without ovnkube: %q", n.Name, lines)
		}
	}
	for _, d := range c.damages(node) {
		_, _, err := c.Node(d.node).Run(c.ctx, d.command[0], d.command[1:]...)
		c.must(err)
		if lines := c.found(c.Node(d.node)); !strings.Contains(strings.Join(lines, "\n"), d.says) {
			t.Errorf("%q on %s: no line with %q in %q", d.command, d.node, d.says, lines)
		}
	}
	c.removeAnnotations(node)
	lines := strings.Join(c.found(c.Master()), "\n")
	for _, want := range []string{"~ Node minion1 annotation k8s.ovn.org/node-subnets → ", "~ Node minion1 annotation ovn_host_subnet → ", "~ Pod default/web annotation: "} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in %s", want, lines)
		}
	}
	for _, n := range c.Nodes {
		c.must(c.RestartOVNKube(c.ctx, n, n.Arguments()...))
	}
	clean("repaired")
}

// found are the lines of ovnkube check on a node.
func (c *cluster) found(n *world.Node) []string {
	c.Helper()
	err := c.CheckOVNKube(c.ctx, n)
	if err == nil {
		c.Errorf("%s: nothing differs", n.Name)
		return nil
	}
	_, text, _ := strings.Cut(err.Error(), ": exit status 1: ")
	lines := strings.Split(strings.TrimPrefix(text, ": "), "\n")
	if !slices.ContainsFunc([]string{"+", "-", "~", "!"}, func(mark string) bool { return strings.HasPrefix(lines[0], mark) }) {
		c.Fatal(err)
	}
	return lines
}

// removeAnnotations removes those of a Node and of its pod.
func (c *cluster) removeAnnotations(n *world.Node) {
	c.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null,%q:null,"ovn":null}}}`, names.SubnetsAnnotation, names.HostSubnetAnnotation)
	_, err := c.Kube.Client().CoreV1().Nodes().Patch(c.ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	c.must(err)
	_, err = c.Kube.Client().CoreV1().Pods("default").Patch(c.ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
	c.must(err)
}

// damages are those of the database and of a host with a shared gateway.
func (c *cluster) damages(n *world.Node) []damage {
	master, db := c.Master().Name, "--db="+c.Central.NB
	port := names.ManagementPort(n.Name)
	return []damage{
		{master, []string{"ovn-nbctl", db, "lsp-del", "default_web"}, "+ Logical_Switch_Port"},
		{master, []string{"ovn-nbctl", db, "clear", "Logical_Router", "GR_" + n.Name, "load_balancer_group"}, "~ Logical_Router GR_" + n.Name},
		{master, []string{"ovn-nbctl", db, "--all", "destroy", "Load_Balancer"}, "+ Load_Balancer"},
		{master, []string{"ovn-nbctl", db, "remove", "Logical_Router", "ovn_cluster_router", "external_ids", names.ChassisPrefix + n.Name}, "+ node " + n.Name + ": system-id"},
		{n.Name, []string{"ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:hostname=other"}, "~ set external_ids:hostname=" + n.Name},
		{n.Name, []string{"ip", "address", "flush", "dev", port}, port},
		{n.Name, []string{"nft", "flush", "ruleset"}, "~ nftables, IPv4: add "},
		{n.Name, []string{"rm", "/etc/cni/net.d/10-ovn-kubernetes.conflist"}, "10-ovn-kubernetes.conflist"},
		{n.Name, []string{"ovs-vsctl", "del-port", "br-int", port}, port},
		{n.Name, []string{"ovs-ofctl", "del-flows", "breth0"}, "~ bridge breth0: "}, // the host has no network any more
	}
}
