package master_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/docs"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovnkube/master"
	"ovn-k8s/lib/watcher"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// The control plane of all tests, the account of masters, and the log of its writes.
var (
	cluster *kubetest.Cluster
	token   string
	audit   string
)

const (
	namespace = "ovn-kubernetes"
	account   = "ovnkube-master"
	policy    = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Metadata", "users": ["system:serviceaccount:ovn-kubernetes:ovnkube-master"], "verbs": ["create", "update", "patch", "delete"]}, {"level": "None"}]}`
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if kubetest.Missing() != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "master")
	if err == nil {
		defer os.RemoveAll(dir)
		err = startCluster(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Close()
	return m.Run()
}

func startCluster(dir string) (err error) {
	ctx := context.Background()
	file := filepath.Join(dir, "policy.yaml")
	audit = filepath.Join(dir, "audit.log")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return err
	}
	cluster, err = kubetest.Start(ctx, kubetest.Options{
		Without: []string{"kube-scheduler"}, Log: func(l string) { fmt.Fprintln(os.Stderr, l) },
		APIServerArgs: []string{"--audit-policy-file=" + file, "--audit-log-path=" + audit},
	})
	if err != nil {
		return err
	}
	rbac, err := docs.Files.ReadFile("rbac-ovnkube.yaml")
	if err == nil {
		err = cluster.Apply(ctx, rbac)
	}
	if err == nil {
		token, err = cluster.ServiceAccountToken(ctx, namespace, account)
	}
	return err
}

// writes are the requests of masters since a time that change something, but for the Lease: verb, resource and name.
func writes(t *testing.T, since time.Time) (all []string) {
	t.Helper()
	text, err := os.ReadFile(audit)
	must(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e struct {
			Verb                     string
			RequestReceivedTimestamp time.Time
			ObjectRef                struct{ Resource, Name, Subresource string }
		}
		must(t, json.Unmarshal(lines.Bytes(), &e))
		if o := e.ObjectRef; o.Resource != "leases" && e.RequestReceivedTimestamp.After(since) {
			all = append(all, fmt.Sprintf("%s %s %s %s", e.Verb, o.Resource, o.Subresource, o.Name))
		}
	}
	return all
}

// A network is a Northbound database, without a cluster.
type network struct {
	*testing.T
	central *ovntest.Central
	flags   map[string]string
	log     *lines
	// accepted is set when a master has not refused the cluster it found.
	accepted atomic.Bool
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	require.Nothing(t, require.Cluster, kubetest.Missing())
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	must(t, err)
	t.Cleanup(central.Close)
	dir := t.TempDir()
	for _, name := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVN_RUNDIR", "OVS_SYSCONFDIR", "OVS_DBDIR"} {
		t.Setenv(name, dir)
	}
	file := filepath.Join(dir, "token")
	must(t, os.WriteFile(file, []byte(token), 0o600))
	settings := filepath.Join(dir, "ovn_k8s.conf")
	must(t, os.WriteFile(settings, []byte("[kubernetes]\novn-config-namespace="+namespace+"\n"), 0o600))
	t.Cleanup(forgetObjects)
	return &network{T: t, central: central, flags: map[string]string{
		"ovn-nb": central.NB, "k8s-api-server": cluster.URL, "k8s-api-token-file": file, "k8s-ca-certificate": cluster.CAFile,
		"config-file": settings,
	}, log: &lines{t: t}}
}

// forgetObjects deletes what tests leave.
func forgetObjects() {
	ctx, api := context.Background(), cluster.Client().CoreV1()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	_ = api.Pods("default").DeleteCollection(ctx, now, metav1.ListOptions{})
	_ = api.Nodes().DeleteCollection(ctx, now, metav1.ListOptions{})
	_ = api.Events("default").DeleteCollection(ctx, now, metav1.ListOptions{})
	_ = api.ConfigMaps(namespace).Delete(ctx, names.TopologyConfigMap, now)
}

// lines are the lines of a log.
type lines struct {
	t    *testing.T
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	return l.t.Output().Write(b)
}

// count counts a text.
func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// A process is a master in this process.
type process struct {
	stop func()
	err  chan error
}

// start runs a master with some ranges until stop.
func (n *network) start(ranges string, adopt bool) process {
	n.Helper()
	r, err := nodesubnet.ParseRanges(ranges)
	must(n.T, err)
	log := logrus.New()
	log.SetOutput(n.log)
	m := n.master(log, master.Settings{Ranges: r, Adopt: adopt})
	ctx, cancel := context.WithCancel(context.Background())
	p := process{err: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := m.Run(ctx, func() {})
		if ctx.Err() == nil {
			log.Info("ended: ", err)
		}
		p.err <- err
	}()
	p.stop = func() {
		cancel()
		<-ended
	}
	n.Cleanup(p.stop)
	return p
}

func (n *network) master(log *logrus.Logger, s master.Settings) *watcher.Watcher {
	return master.New(watcher.Options{Flags: n.flags, Log: func(module string) *logrus.Entry { return log.WithField("module", module) }},
		func(config.Config) master.Settings { return s }, func() { n.accepted.Store(true) })
}

// check compares as "ovnkube check" does, and returns the differences, or the error.
func (n *network) check(ranges string, adopt bool) string {
	n.Helper()
	r, err := nodesubnet.ParseRanges(ranges)
	must(n.T, err)
	log := logrus.New()
	log.SetOutput(n.log)
	var out strings.Builder
	if _, err := n.master(log, master.Settings{Ranges: r, Adopt: adopt}).Check(n.Context(), &out); err != nil {
		return err.Error()
	}
	return out.String()
}

func (n *network) node(name string, edit func(*corev1.Node)) {
	n.Helper()
	node := kubetest.Node(name)
	if edit != nil {
		edit(node)
	}
	_, err := cluster.Client().CoreV1().Nodes().Create(n.Context(), node, metav1.CreateOptions{})
	must(n.T, err)
}

func (n *network) delete(name string) {
	n.Helper()
	must(n.T, cluster.Client().CoreV1().Nodes().Delete(n.Context(), name, metav1.DeleteOptions{}))
}

// annotate sets annotations of a Node; "" removes one.
func (n *network) annotate(name string, annotations map[string]string) {
	n.Helper()
	values := map[string]any{}
	for key, v := range annotations {
		if values[key] = v; v == "" {
			values[key] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	must(n.T, err)
	_, err = cluster.Client().CoreV1().Nodes().Patch(n.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	must(n.T, err)
}

// subnet is the annotation of a Node with its subnets.
func (n *network) subnet(name string) string {
	n.Helper()
	node, err := cluster.Client().CoreV1().Nodes().Get(n.Context(), name, metav1.GetOptions{})
	must(n.T, err)
	return node.Annotations[names.HostSubnetAnnotation]
}

// awaitSubnet waits until a Node has a subnet; "": any.
func (n *network) awaitSubnet(name, want string) string {
	n.Helper()
	got := ""
	eventually(n.T, fmt.Sprintf("node %s has subnet %q", name, want), func() bool {
		got = n.subnet(name)
		return got != "" && (want == "" || got == want)
	})
	return got
}

// awaitEvent waits for an Event about a Node with a reason and a part of its message.
func (n *network) awaitEvent(name, reason, text string) {
	n.Helper()
	eventually(n.T, fmt.Sprintf("an Event %s about node %s: %s", reason, name, text), func() bool {
		list, err := cluster.Client().CoreV1().Events("default").List(n.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + name})
		must(n.T, err)
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason && strings.Contains(e.Message, text) })
	})
}

// nbctl returns the output of ovn-nbctl in one line.
func (n *network) nbctl(args ...string) string {
	n.Helper()
	out, err := n.central.NBCtl(args...)
	must(n.T, err)
	return strings.Join(strings.Fields(out), " ")
}

// find lists a column of the rows with a condition.
func (n *network) find(table, column string, conditions ...string) string {
	n.Helper()
	return n.nbctl(append([]string{"--bare", "--columns=" + column, "find", table}, conditions...)...)
}

// failure waits for the end of a master that cannot start, and returns the reason.
func (p process) failure(t *testing.T) string {
	t.Helper()
	select {
	case err := <-p.err:
		return fmt.Sprint(err)
	case <-time.After(patience):
		t.Fatal("it has not ended")
		return ""
	}
}

// patience bounds every wait.
const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
