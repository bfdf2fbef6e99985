package ovnkube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/test/world"
)

// gatewayModes are the modes of the nodes' gateways.
func gatewayModes() map[string]string {
	return map[string]string{"master": world.Local, "minion1": world.Shared, "minion2": world.Dedicated}
}

// A takeover is a cluster of others that ovnkube takes over.
type takeover struct{ *cluster }

// ovnkube takes over a cluster of the other programs, host by host: no session of a pod ends, no packet between pods is
// lost, and addresses, subnets and rows stay. Without --adopt the master refuses, and changes nothing. Pods leave by their
// own node's gateway, before and after.
func TestTakeOver(t *testing.T) {
	c := takeover{newHosts(t, world.Options{})}
	c.run()
	s := c.busy(rampout)
	s.countPackets(ring()...)
	before := c.rows()
	bin, err := programs()
	c.must(err)
	c.must(c.PrepareOVNKube(c.ctx, bin))
	for _, n := range c.Nodes {
		c.must(n.Retire(c.ctx))
		args := world.GatewayOptions(n, gatewayModes()[n.Name])
		if n == c.Master() {
			c.refusesWithoutAdopt(n, args)
			args = append(args, "-adopt")
		}
		c.must(c.TakeOver(c.ctx, n, args...))
		c.eventually("a complete "+n.Name, func() error { return c.CheckOVNKube(c.ctx, n) })
		s.goOn("the start of ovnkube on " + n.Name)
	}
	if diff := difference(before, c.rows()); diff != "" {
		t.Errorf("rows (-before +after)\n%s", diff)
	}
	c.sameSubnets()
	s.goOn("the take-over")
	c.changes(s)
}

// ring are the pods of busy in an order with pairs on one host and on two.
func ring() []string { return []string{"a", "b", "b2", "c"} }

// rampout are options of gateway-init: the gateway is for its own node's pods, as those of ovnkube are.
func rampout(n *world.Node) []string { return []string{"--rampout-ip-subnets=" + n.Subnets} }

// busy makes every node a gateway with some options, and opens sessions of each kind.
func (c *cluster) busy(options func(*world.Node) []string) *sessions {
	c.Helper()
	for _, n := range c.Nodes {
		_, err := c.AddGateway(c.ctx, n, gatewayModes()[n.Name], options(n)...)
		c.must(err)
	}
	s := c.newSessions(map[string]string{"a": "master", "b": "minion1", "b2": "minion1", "c": "minion2"})
	s.ring(ring()...)
	s.toService("c")
	s.goOn("the start")
	return s
}

// sameSubnets fails the test if a Node has other subnets than its World's.
func (c takeover) sameSubnets() {
	c.Helper()
	for _, n := range c.Nodes {
		node, err := c.Kube.Client().CoreV1().Nodes().Get(c.ctx, n.Name, metav1.GetOptions{})
		c.must(err)
		var want []netip.Prefix
		for s := range strings.SplitSeq(n.Subnets, ",") {
			want = append(want, netip.MustParsePrefix(s))
		}
		got, err := nodesubnet.ParseAnnotations(node.Annotations)
		if err != nil || !slices.Equal(got, want) {
			c.Errorf("%s has subnets %v, %v, want %v", n.Name, got, err, want)
		}
	}
}

// refusesWithoutAdopt starts ovnkube in vain.
func (c takeover) refusesWithoutAdopt(n *world.Node, args []string) {
	c.Helper()
	const want = "ovnkube: the nodes of this cluster were made by minion-init, with subnets of their own: master, minion1, minion2: give --adopt to take them over, with their subnets"
	rows, host := c.rows(), c.snapshot(n)
	err := c.RestartOVNKube(c.ctx, n, args...)
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 1: "+want) {
		c.Errorf("without --adopt: %v", err)
	}
	if diff := difference(rows, c.rows()); diff != "" {
		c.Errorf("a refused start changed rows (-before +after)\n%s", diff)
	}
	if diff := difference(host, c.snapshot(n)); diff != "" {
		c.Errorf("a refused start changed the host (-before +after)\n%s", diff)
	}
}

// changes are usual in a cluster: pods come and go on each node, and a node does.
func (c takeover) changes(s *sessions) {
	c.Helper()
	s.close()
	old := slices.Collect(maps.Values(s.pods))
	for _, n := range c.Nodes {
		c.must(c.create(c.ctx, "new-"+n.Name, n.Name))
	}
	var young []world.Endpoint
	for _, n := range c.Nodes {
		young = append(young, c.await("new-"+n.Name))
	}
	c.reach(slices.Concat(world.Matrix(old, young), world.Matrix(young, old)))
	for name := range s.pods {
		c.remove(name)
	}
	n := c.Nodes[len(c.Nodes)-1]
	c.remove("new-" + n.Name)
	c.must(world.Rejoin(c.ctx, c.World, n))
	c.must(c.create(c.ctx, "again", n.Name))
	c.reach(world.Matrix([]world.Endpoint{c.await("again")}, young[:len(young)-1]))
	for _, n := range c.Nodes {
		c.eventually("at last "+n.Name, func() error { return c.CheckOVNKube(c.ctx, n) })
	}
}

// reach fails the test for each request without an answer.
func (c *cluster) reach(attempts []world.Attempt) {
	c.Helper()
	for _, a := range world.Try(c.ctx, attempts) {
		c.Errorf("%v: %v", a, a.Err)
	}
}

// remove deletes a pod, and waits until its sandbox and its logical port are gone.
func (c *cluster) remove(name string) {
	c.Helper()
	c.must(c.Kube.DeletePod(c.ctx, "default", name))
	c.eventually("pod "+name+" is gone", func() error {
		if _, err := c.Kube.Client().CoreV1().Pods("default").Get(c.ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the pod exists: %w", err)
		}
		port, err := c.Central.NBCtl("--bare", "--columns=name", "find", "Logical_Switch_Port", "name=default_"+name)
		if err == nil && port != "" {
			err = fmt.Errorf("logical port %s exists", port)
		}
		return err
	})
}

// rows are all rows of the network with all columns, but for the record on the cluster router, and the annotations of pods.
func (c takeover) rows() (all []string) {
	c.Helper()
	commands := []string{"--columns=_uuid,name,options,ports,static_routes,policies,nat,load_balancer_group list Logical_Router"}
	for _, table := range []string{
		"Logical_Switch", "Logical_Switch_Port", "Logical_Router_Port", "Logical_Router_Static_Route", "Logical_Router_Policy", "NAT", "Load_Balancer",
		"Load_Balancer_Group", "Address_Set", "Port_Group", "ACL", "Chassis_Template_Var",
	} {
		commands = append(commands, "list "+table)
	}
	for _, command := range commands {
		text, err := c.Central.NBCtl(append([]string{"--format=csv", "--no-headings"}, strings.Fields(command)...)...)
		c.must(err)
		for l := range strings.Lines(text) {
			all = append(all, command+": "+strings.TrimSpace(l))
		}
	}
	pods, err := c.Kube.Client().CoreV1().Pods("").List(c.ctx, metav1.ListOptions{})
	c.must(err)
	for _, p := range pods.Items {
		all = append(all, fmt.Sprintf("Pod %s %s %s", p.Name, p.Status.PodIPs, p.Annotations[names.Annotation]))
	}
	slices.Sort(all)
	return all
}
