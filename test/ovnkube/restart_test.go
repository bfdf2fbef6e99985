package ovnkube

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/test/world"
)

// Pods created while ovnkube is killed and restarted on their node start without a failed sandbox: the shim waits.
func TestPodsStartDuringRestarts(t *testing.T) {
	const rounds, each = 8, 5
	c := newCluster(t, world.Options{Minions: 1})
	c.run()
	for _, n := range c.Nodes {
		for round := range rounds {
			var g errgroup.Group
			g.Go(func() error { return c.RestartOVNKube(c.ctx, n) })
			for i := range each {
				g.Go(func() error { return c.create(c.ctx, fmt.Sprintf("%s-%d-%d", n.Name, round, i), n.Name) })
			}
			c.must(g.Wait())
		}
		for round := range rounds {
			for i := range each {
				c.await(fmt.Sprintf("%s-%d-%d", n.Name, round, i))
			}
		}
	}
	if failed := c.failures(); len(failed) > 0 {
		t.Errorf("%d failed sandboxes: %q", len(failed), failed)
	}
	for _, a := range world.Try(c.ctx, world.Matrix([]world.Endpoint{c.await("minion1-0-0")}, []world.Endpoint{c.await("master-0-0")})) {
		t.Errorf("%v: %v", a, a.Err)
	}
}
