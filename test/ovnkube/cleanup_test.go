package ovnkube

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/world"
)

// AC-49, AC-50: ovnkube --cleanup-node takes back everything that the node role did on a host, with a gateway of each mode and
// without. Pods go on talking to each other meanwhile, and can be deleted when ovnkube runs again.
func TestCheck49_50_CleanUp(t *testing.T) {
	modes := map[string]string{"master": "", "minion1": world.Shared, "minion2": world.Dedicated, "minion3": world.Local}
	c := newCluster(t, world.Options{Minions: 3})
	bin, err := programs()
	c.must(err)
	c.must(c.PrepareOVNKube(c.ctx, bin))
	before := map[string][]string{}
	for _, n := range c.Nodes {
		before[n.Name] = c.snapshot(n)
		c.must(c.RestartOVNKube(c.ctx, n, world.GatewayOptions(n, modes[n.Name])...))
	}
	c.must(c.StartKubelets(c.ctx))
	for _, n := range c.Nodes {
		c.eventually("a complete "+n.Name, func() error { return c.CheckOVNKube(c.ctx, n) })
	}
	s := c.newSessions(map[string]string{"a": "master", "b": "minion1", "b2": "minion1", "c": "minion2", "c2": "minion2", "d": "minion3", "d2": "minion3"})
	s.ring("a", "b", "b2", "c", "c2", "d", "d2")
	s.goOn("the start")
	for _, n := range slices.Backward(c.Nodes) {
		c.must(c.CleanNode(c.ctx, n))
		s.goOn("the clean-up of " + n.Name)
		c.eventually("no gateway of "+n.Name, func() error {
			if routers := c.nbRows("Logical_Router", "name"); strings.Contains(routers, names.GatewayRouter(n.Name)) {
				return errors.New(routers)
			}
			return nil
		})
		after := c.snapshot(n)
		if diff := difference(before[n.Name], after); diff != "" {
			t.Errorf("%s with gateway %q (-before +after)\n%s", n.Name, modes[n.Name], diff)
		}
		if ports, err := n.VSGet(c.ctx, "list-ports", "br-int"); err != nil || strings.Contains(ports, "k8s-") {
			t.Errorf("ports of br-int on %s: %s, %v", n.Name, ports, err)
		}
	}
	for _, n := range c.Nodes {
		c.must(c.RestartOVNKube(c.ctx, n, n.Arguments()...))
	}
	for _, n := range c.Nodes {
		c.eventually("a complete "+n.Name+" again", func() error { return c.CheckOVNKube(c.ctx, n) })
	}
	s.goOn("the return")
	s.close()
	for name := range s.pods {
		c.remove(name)
	}
}

// nbRows lists a column of all rows of a table of the Northbound database.
func (c *cluster) nbRows(table, column string) string {
	c.Helper()
	text, err := c.Central.NBCtl("--bare", "--columns="+column, "list", table)
	c.must(err)
	return strings.Join(strings.Fields(text), " ")
}
