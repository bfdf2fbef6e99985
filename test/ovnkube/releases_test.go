package ovnkube

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"ovn-k8s/test/build"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// formerCommit is the release before this one, unless the environment variable OVNK8S_TEST_FORMER names another commit.
const formerCommit = "56d3de4"

// former are the programs of the release before this one, built once.
var former = sync.OnceValues(func() (string, error) {
	var packages []string
	for _, p := range slices.Concat(world.Programs(), world.OVNKube()) {
		packages = append(packages, "./"+p)
	}
	return build.Commit(context.Background(), cmp.Or(os.Getenv("OVNK8S_TEST_FORMER"), formerCommit), packages...)
})

// A change of releases is that of all hosts of a cluster, one after another.
type change struct{ *sessions }

// The programs of a cluster are upgraded host by host, masters first or last, and go back: no session ends, pods start on
// hosts of both releases, and comparisons find nothing. Neither release writes a row twice, and the way back restores all rows.
func TestUpgradeOfPrograms(t *testing.T) {
	if os.Getenv(upgradesKey) == "" {
		t.Skip("it builds another release: make test-upgrade")
	}
	for _, kind := range []string{"watcher and helpers", "ovnkube"} {
		for _, order := range []string{"masters first", "nodes first"} {
			t.Run(kind+", "+order, func(t *testing.T) {
				c := &change{inUse(t, kind == "ovnkube", former)}
				hosts := slices.Clone(c.Nodes)
				if order == "nodes first" {
					slices.Reverse(hosts)
				}
				bin, err := programs()
				c.must(err)
				before := c.rows()
				c.to(hosts, bin)
				c.Logf("rows of this release (-before +after)\n%s", difference(before, c.rows()))
				bin, err = former()
				c.must(err)
				c.to(hosts, bin)
				if diff := difference(before, c.rows()); diff != "" {
					t.Errorf("rows after the way back (-before +after)\n%s", diff)
				}
			})
		}
	}
}

// inUse makes a cluster with the programs of a release, and opens sessions.
func inUse(t *testing.T, ovnkube bool, release func() (string, error)) *sessions {
	t.Helper()
	require.Nothing(t, require.Cluster, world.Missing())
	bin, err := release()
	if err != nil {
		t.Fatal(err)
	}
	c := newHosts(t, world.Options{OVNKube: ovnkube})
	c.must(c.Install(c.ctx, bin))
	c.must(c.StartKubelets(c.ctx))
	if ovnkube {
		return c.busy(func(*world.Node) []string { return nil })
	}
	return c.busy(rampout)
}

// to installs the programs of a directory on hosts, one after another, and restarts them.
func (c *change) to(hosts []*world.Node, bin string) {
	c.Helper()
	for _, n := range hosts {
		before := c.records()
		c.must(world.Upgrade{World: c.World}.Install(n, bin))
		c.must(world.Upgrade{World: c.World}.Restart(c.ctx, n))
		c.goOn("the change of " + n.Name)
		c.eventually("the comparison after the change of "+n.Name, func() error { return c.Check(c.ctx) })
		c.writtenAtOnce("the change of "+n.Name, c.records()[len(before):])
		c.startPods()
	}
}

// nextAddresses matches a node's next addresses for pods, which move on with each pod.
var nextAddresses = regexp.MustCompile(`ovn-k8s-next=""[^"]*""`)

// rows are those of takeover, but for next addresses.
func (c *change) rows() []string {
	c.Helper()
	all := takeover{c.cluster}.rows()
	for i, row := range all {
		all[i] = nextAddresses.ReplaceAllString(row, "")
	}
	return all
}

// startPods creates a pod on each node, and deletes it when all of them reach each other.
func (c *change) startPods() {
	c.Helper()
	var all []world.Endpoint
	for _, n := range c.Nodes {
		c.must(c.create(c.ctx, "new-"+n.Name, n.Name))
	}
	for _, n := range c.Nodes {
		all = append(all, c.await("new-"+n.Name))
	}
	c.reach(world.Matrix(all, all))
	for _, n := range c.Nodes {
		c.remove("new-" + n.Name)
	}
}

// records are the transactions of the Northbound database.
func (c *change) records() []ovntest.Record {
	c.Helper()
	all, err := c.Central.NBRecords()
	c.must(err)
	return all
}

// writtenAtOnce fails the test if more than one transaction changed rows of the network.
func (c *change) writtenAtOnce(what string, records []ovntest.Record) {
	c.Helper()
	var network []string
	for _, r := range records {
		if len(r.Rows) == 1 && r.Rows["NB_Global"] > 0 {
			continue
		}
		network = append(network, fmt.Sprintf("%s: %v", r.Comment, r.Rows))
	}
	if len(network) > 1 {
		c.Errorf("%s: %d transactions\n%s", what, len(network), strings.Join(network, "\n"))
	}
}
