package ovnkube

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"ovn-k8s/test/host"
	"ovn-k8s/test/world"
)

// br-int of a node gets a datapath missing on this host, under running pods, and gets its own again: one line tells, the
// pods keep their sandboxes and addresses, and they reach each other again without a restart.
func TestDatapathChangesUnderPods(t *testing.T) {
	host.OnUserspace(t)
	c := newCluster(t, world.Options{Minions: 1})
	c.run()
	n := c.Node("minion1")
	var pods []world.Endpoint
	for name, on := range map[string]string{"here": n.Name, "there": "master"} {
		c.must(c.create(c.ctx, name, on))
		pods = append(pods, c.await(name))
	}
	reach := func() (err error) {
		for _, a := range world.Try(c.ctx, world.Matrix(pods, pods)) {
			err = errors.Join(err, a.Err)
		}
		return err
	}
	c.eventually("pods before", reach)
	datapath := func(kind string) {
		c.must(n.VSCtl(c.ctx, "--no-wait", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-datapath-type="+kind))
		c.awaitDatapath(n, kind)
	}
	datapath("system")
	lacks := "trying again: " + host.Refusal()
	lines := func() error {
		text, err := os.ReadFile(n.Path(world.OVNKubeLog))
		if count := strings.Count(string(text), lacks); err == nil && count != 1 {
			err = fmt.Errorf("%d lines with %q:\n%s", count, lacks, text)
		}
		return err
	}
	c.eventually("log", lines)
	if reach() == nil {
		t.Error("pods reach each other without a datapath")
	}
	datapath("netdev")
	c.eventually("pods afterwards", reach)
	c.must(lines())
	if failed := c.failures(); len(failed) > 0 {
		t.Errorf("failed sandboxes: %q", failed)
	}
	c.must(c.CheckOVNKube(c.ctx, n))
	text, err := os.ReadFile(n.Path(world.OVNKubeLog))
	c.must(err)
	t.Log(string(text))
}

// awaitDatapath waits until ovn-controller of a node has given br-int a datapath.
func (c *cluster) awaitDatapath(n *world.Node, kind string) {
	c.Helper()
	c.eventually("br-int", func() error {
		got, err := n.VSGet(c.ctx, "get", "Bridge", "br-int", "datapath_type")
		if err == nil && strings.Trim(got, `"`) != kind {
			err = fmt.Errorf("datapath_type %s", got)
		}
		return err
	})
}
