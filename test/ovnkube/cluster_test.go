package ovnkube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// programs are built once for all tests.
var programs = sync.OnceValues(func() (string, error) { return world.Build(context.Background(), world.OVNKube()...) })

// A cluster is made by ovnkube on a master and its minions.
type cluster struct {
	*testing.T
	*world.World
	ctx context.Context

	mu    sync.Mutex
	lines []string // of the log
}

// newCluster makes hosts with Open vSwitch and OVN for a cluster of ovnkube.
func newCluster(t *testing.T, o world.Options) *cluster {
	t.Helper()
	o.OVNKube = true
	return newHosts(t, o)
}

// newHosts makes hosts with Open vSwitch and OVN.
func newHosts(t *testing.T, o world.Options) *cluster {
	t.Helper()
	require.Nothing(t, require.Cluster, world.Missing())
	if _, err := programs(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(8*time.Minute))
	t.Cleanup(cancel)
	c := &cluster{T: t, ctx: ctx}
	o.Log = func(line string) {
		t.Log(line)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines = append(c.lines, line)
	}
	var err error
	c.World, err = world.New(ctx, o)
	c.must(err)
	t.Cleanup(c.Close)
	return c
}

// run starts the programs and kubelets on all hosts, and waits until the nodes are ready for pods.
func (c *cluster) run() {
	c.Helper()
	bin, err := programs()
	c.must(err)
	c.must(c.Install(c.ctx, bin))
	c.must(c.StartKubelets(c.ctx))
	for _, n := range c.Nodes {
		c.eventually(n.Name, func() error { return nodeReady(c, n.Name) })
	}
}

// nodeReady returns an error unless a node is ready for pods, which needs a CNI configuration there.
func nodeReady(c *cluster, name string) error {
	node, err := c.Kube.Client().CoreV1().Nodes().Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	isReady := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if !slices.ContainsFunc(node.Status.Conditions, isReady) {
		return fmt.Errorf("not ready: %+v", node.Status.Conditions)
	}
	return nil
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// failures are the failed sandboxes of all pods.
func (c *cluster) failures() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		if strings.Contains(l, "setting up") {
			all = append(all, l)
		}
	}
	return all
}

// create creates a pod.
func (c *cluster) create(ctx context.Context, name, node string) error {
	_, err := c.Kube.CreatePod(ctx, "default", name, node, nil)
	return err
}

// await waits until a pod runs.
func (c *cluster) await(name string) world.Endpoint {
	c.Helper()
	pod, err := c.AwaitPod(c.ctx, "default", name)
	if err != nil {
		c.Fatalf("pod %s does not run: %v", name, err)
	}
	return pod
}

// eventually waits until a function returns no error.
func (c *cluster) eventually(what string, f func() error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, limit.Of(time.Minute))
	defer cancel()
	if err := poll.Until(ctx, f); err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// everyNode waits until ovs-vsctl prints a value on each node.
func (c *cluster) everyNode(want string, args ...string) {
	c.Helper()
	for _, n := range c.Nodes {
		c.eventually(n.Name, func() error {
			got, err := n.VSGet(c.ctx, args...)
			if err == nil && strings.Trim(got, `"`) != want {
				err = fmt.Errorf("%v: %s, want %s", args, got, want)
			}
			return err
		})
	}
}

// rows are the sorted rows of the Northbound database, but for those with numbers of transactions and of connections.
func (c *cluster) rows() (rows []string) {
	c.Helper()
	dump, _, err := c.Master().Run(c.ctx, "ovsdb-client", "-f", "csv", "dump", c.Central.NBTCP, "OVN_Northbound")
	c.must(err)
	for table := range strings.SplitSeq(dump, "\n\n") {
		if !strings.HasPrefix(table, "NB_Global ") && !strings.HasPrefix(table, "Connection ") {
			rows = append(rows, strings.Split(table, "\n")...)
		}
	}
	slices.Sort(rows)
	return rows
}
