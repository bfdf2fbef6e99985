package kubelets

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/poll"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

//go:embed testdata/workloads.yaml
var workloads []byte

//go:embed testdata/static.yaml
var staticPod []byte

// connectJob is a format; its arguments are a name, how many pods may fail, the image and the server's address.
const connectJob = `{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": %q},
"spec": {"completions": 10, "parallelism": 5, "backoffLimit": %d, "template": {"spec": {"restartPolicy": "Never",
"containers": [{"name": "connect", "image": %q, "args": ["connect", "--protocol=udp", "--timeout=10s", "%v"]}]}}}}`

const (
	// level is the level of OVNK8S_TEST_NEED for machines with a kubelet.
	level = "kubelets"
	// patience bounds every wait.
	patience = 2 * time.Minute

	webReplicas = 20
	httpPort    = 8080 // of agnhost netexec
	udpPort     = 8081
)

// TestKubelets runs the acceptance tests on a cluster with real kubelets. The parts
// share one cluster, in this order, and restore its state. With KEEP=1 the cluster
// stays until the test is interrupted.
func TestKubelets(t *testing.T) {
	require.Nothing(t, level, Missing())
	c := newCluster(t, 1)
	c.empty = c.traces(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"Deployment", testDeployment},
		{"Connectivity", testConnectivity},
		{"Kubectl", testKubectl},
		{"Liveness", testLiveness},
		{"StatefulSet", testStatefulSet},
		{"ForcedDeletion", testForcedDeletion},
		{"Job", testJob},
		{"FirstPacket", testFirstPacket},
		{"Bandwidth", testBandwidth},
		{"HostNetwork", testHostNetwork},
		{"StaticPod", testStaticPod},
		{"SandboxKilled", testSandboxKilled},
		{"ControllerStopped", testControllerStopped},
		{"Scaling", testScaling},
		{"WatcherKilled", testWatcherKilled},
		{"Faults", testFaults},
		{"FullDisk", testFullDisk},
		{"NodeServicesRestarted", testServicesRestarted},
		{"NodeRebooted", testRebooted},
		{"DatabaseLost", testDatabaseLost},
		{"NodeDeleted", testNodeDeleted},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
	t.Run("NothingLeft", func(t *testing.T) {
		c.clear(t)
		c.check(t)
	})
	c.keep(t)
}

// A cluster is a Cluster with helpers for tests.
type cluster struct {
	*Cluster
	empty []string // traces without any pods
}

// newCluster creates a cluster of a master and minions and waits until its nodes
// are ready. Logs are kept if the test fails.
func newCluster(t *testing.T, minions int) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelets")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	bin, err := world.Build(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	if c.Cluster, err = Start(ctx, Options{Dir: dir, Bin: bin, Minions: minions, Log: func(l string) { t.Log(l) }}); err != nil {
		t.Fatalf("%v; logs are in %s", err, dir)
	}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	for _, n := range c.Nodes {
		c.kubectl(t, "wait", "--for=create", "--timeout=60s", "node/"+n.Name)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node", "--all")
	if err := c.kube.Apply(ctx, workloads); err != nil {
		t.Fatal(err)
	}
	return c
}

// keep waits for an interrupt if KEEP=1, for debugging.
func (c *cluster) keep(t *testing.T) {
	t.Helper()
	if os.Getenv("KEEP") != "1" {
		return
	}
	t.Logf("kept until kill -INT %d: export KUBECONFIG=%s", os.Getpid(), c.kube.Kubeconfig)
	for _, n := range c.Nodes {
		t.Logf("%s: nsenter --target %d --mount --uts --ipc --net --pid", n.Name, n.PID())
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	<-interrupted
}

// ctx returns the test's context, bounded by patience.
func (c *cluster) ctx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(c.ctx(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// await polls until done returns no error.
func (c *cluster) await(t *testing.T, done func() error) {
	t.Helper()
	if err := poll.Until(c.ctx(t), done); err != nil {
		t.Fatal(err)
	}
}

// scale scales the Deployment web and waits until there are that many pods, all ready.
func (c *cluster) scale(t *testing.T, replicas int) []corev1.Pod {
	t.Helper()
	c.kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", replicas))
	return c.awaitPods(t, "app=web", replicas)
}

// clear removes all pods of web and waits until they have left no traces.
func (c *cluster) clear(t *testing.T) {
	t.Helper()
	c.scale(t, 0)
	c.leaves(t, c.empty)
}

// awaitPods waits until there are exactly n pods, all ready.
func (c *cluster) awaitPods(t *testing.T, selector string, n int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	c.await(t, func() error {
		list, err := c.kube.Client().CoreV1().Pods("default").List(c.ctx(t), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		pods = list.Items
		unready := slices.IndexFunc(pods, func(p corev1.Pod) bool { return !ready(p) })
		switch {
		case len(pods) != n:
			return fmt.Errorf("%d pods with %s instead of %d", len(pods), selector, n)
		case unready >= 0:
			return fmt.Errorf("pod %s is not ready", pods[unready].Name)
		}
		return nil
	})
	return pods
}

func ready(p corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// onNode returns the first of pods on a node.
func onNode(t *testing.T, pods []corev1.Pod, node string) corev1.Pod {
	t.Helper()
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	if i < 0 {
		t.Fatalf("no pod on %s", node)
	}
	return pods[i]
}

// check waits until the watcher's --check finds no difference.
func (c *cluster) check(t *testing.T) {
	t.Helper()
	c.await(t, func() error { return c.Check(c.ctx(t)) })
}

// traces lists the resources of pods outside of Kubernetes: OVS and OVN rows, links and namespaces.
func (c *cluster) traces(t *testing.T) []string {
	t.Helper()
	ctx := c.ctx(t)
	var all []string
	collect := func(n *Runtime, what string, command ...string) {
		out, _, err := n.Run(ctx, command[0], command[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, n.Name+" "+what+" "+line)
			}
		}
	}
	for _, n := range c.Runtimes {
		for _, table := range []string{"Interface", "Port"} {
			collect(n, table, "ovs-vsctl", "--bare", "--columns=name", "list", table)
		}
		collect(n, "QoS", "ovs-vsctl", "--bare", "--columns=type", "list", "QoS")
		collect(n, "Queue", "ovs-vsctl", "--bare", "--columns=other_config", "list", "Queue")
		collect(n, "link", "sh", "-c", "ls /sys/class/net")
		collect(n, "namespace", "sh", "-c", "ls /run/netns")
	}
	for _, table := range []string{"Logical_Switch_Port", "Address_Set", "QoS", "DHCP_Options"} {
		collect(c.Runtimes[0], "NB "+table, "ovn-nbctl", "--bare", "--columns=_uuid", "list", table)
	}
	collect(c.Runtimes[0], "SB binding", "ovn-sbctl", "--bare", "--columns=logical_port", "list", "Port_Binding")
	slices.Sort(all)
	return all
}

// leaves fails t unless the traces become equal to before.
func (c *cluster) leaves(t *testing.T, before []string) {
	t.Helper()
	var diff string
	err := poll.Until(c.ctx(t), func() error {
		if diff = cmp.Diff(before, c.traces(t)); diff != "" {
			return errors.New("something is left")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v: (-before +after)\n%s", err, diff)
	}
}
