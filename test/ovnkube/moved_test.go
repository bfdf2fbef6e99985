package ovnkube

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/world"
)

// AC-103: the Endpoints of ovnkube-db, from which Kubernetes makes EndpointSlices, get another address of the databases' host, while
// pods are created. All nodes and the master connect there, and no pod fails.
func TestCheck103_DatabasesMove(t *testing.T) {
	c := newCluster(t, world.Options{Minions: 1})
	c.run()
	_, err := c.Kube.Client().CoreV1().Services("ovn-kubernetes").Create(c.ctx, databaseService(), metav1.CreateOptions{})
	c.must(err)
	first := c.Master().Addresses[0].Addr()
	second, _ := c.Master().Second()
	s := c.stream("moving")
	for _, a := range []netip.Addr{second[0].Addr(), first} {
		moveDatabases(c, a)
		for port, key := range map[int]string{6641: "ovn-nb", 6642: "ovn-remote"} {
			c.everyNode(fmt.Sprintf("tcp:%v:%d", a, port), "get", "Open_vSwitch", ".", "external_ids:"+key)
		}
		for _, n := range c.Nodes {
			c.eventually("connections of "+n.Name, func() error { return connectedTo(c, n, a) })
		}
		c.must(c.create(c.ctx, "at-"+strings.ReplaceAll(a.String(), ".", "-"), "minion1"))
		c.await("at-" + strings.ReplaceAll(a.String(), ".", "-"))
	}
	pods := s.stop()
	t.Logf("%d pods", len(pods))
	if failed := c.failures(); len(failed) > 0 {
		t.Errorf("%d failed sandboxes: %q", len(failed), failed)
	}
	c.must(c.Check(c.ctx))
}

func databaseService() *corev1.Service {
	ports := []corev1.ServicePort{{Name: "north", Port: 6641}, {Name: "south", Port: 6642}}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "ovnkube-db"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: ports}}
}

// moveDatabases sets the address in the Endpoints of the databases.
func moveDatabases(c *cluster, to netip.Addr) {
	c.Helper()
	manifest := "apiVersion: v1\nkind: Endpoints\nmetadata: {name: ovnkube-db, namespace: ovn-kubernetes}\n" +
		"subsets: [{addresses: [{ip: %v}], ports: [{name: north, port: 6641}, {name: south, port: 6642}]}]\n"
	c.must(c.Kube.Apply(c.ctx, fmt.Appendf(nil, manifest, to)))
}

// connectedTo returns an error unless all connections of a node's programs to the databases go to an address: one of
// ovn-controller, and on the master one to each database besides.
func connectedTo(c *cluster, n *world.Node, to netip.Addr) error {
	out, _, err := n.Run(c.ctx, "ss", "-Htn", "state", "established", "( dport = :6641 or dport = :6642 )")
	if err != nil {
		return err
	}
	want := 1
	if n == c.Master() {
		want = 3
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines {
		if !strings.Contains(l, to.String()+":664") {
			return errors.New(out)
		}
	}
	if len(lines) < want {
		return fmt.Errorf("%d connections, want %d: %s", len(lines), want, out)
	}
	return nil
}
