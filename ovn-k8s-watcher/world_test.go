package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// asWatcher makes the test binary run as the watcher.
const asWatcher = "OVNK8S_TEST_AS_WATCHER"

// cluster is the control plane of all tests; nil if the machine has none.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(asWatcher) != "" {
		os.Exit(run(os.Args[1:], cli.OS()))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if kubetest.Missing() == "" {
		var err error
		if cluster, err = kubetest.Start(context.Background(), kubetest.Options{Without: []string{"kube-scheduler"}, Log: func(l string) { fmt.Fprintln(os.Stderr, l) }}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer cluster.Close()
	}
	return m.Run()
}

// terminate asks a process to end.
const terminate = syscall.SIGTERM

// patience bounds every wait.
const patience = 2 * time.Minute

// An api has the objects of a test in the API server.
type api struct{ *testing.T }

// A world is a Northbound database and the shared control plane. Its watchers write only into this database and the
// objects of the test.
type world struct {
	api
	central *ovntest.Central
	dir     string // run directory, token
	url     string // of the API server
}

// newWorld returns a world with the given nodes: subnets by name.
func newWorld(t *testing.T, nodes map[string]string) *world {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	dir, err := os.MkdirTemp("", "watcher")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(central.Close)
	w := &world{api{t}, central, dir, cluster.URL}
	w.write("token", cluster.Token)
	w.cleanAPI()
	t.Cleanup(w.cleanAPI)
	if nodes != nil {
		w.topology(nodes)
	}
	return w
}

// signal sends a signal to the process of a pidfile in the world's directory.
func (w *world) signal(pidfile string, s syscall.Signal) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, pidfile))
	if err != nil {
		w.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		w.Fatal(err)
	}
	if err := syscall.Kill(pid, s); err != nil {
		w.Fatal(err)
	}
}

func (w *world) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// cleanAPI deletes the objects of tests and watchers from the API server.
func (w api) cleanAPI() {
	w.Helper()
	ctx := context.Background()
	now := int64(0)
	api := cluster.Client().CoreV1()
	for _, err := range []error{
		api.Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}),
		cluster.Client().NetworkingV1().NetworkPolicies("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		api.Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		api.Events("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		api.Events(names.ConfigNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		api.ConfigMaps(names.ConfigNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + names.TopologyConfigMap}),
		// The next test need not wait for a killed watcher's Lease.
		cluster.Client().CoordinationV1().Leases(names.ConfigNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + names.WatcherLease}),
	} {
		if err != nil {
			w.Fatal(err)
		}
	}
}

func prefixes(s string) []netip.Prefix {
	var out []netip.Prefix
	for p := range strings.SplitSeq(s, ",") {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// topology writes the topology like the one-shot commands. The first node's subnets decide the families.
func (w *world) topology(nodes map[string]string) topology.Cluster {
	w.Helper()
	subnets := "192.168.0.0/16"
	for _, s := range nodes {
		if strings.Contains(s, ":") {
			subnets = "192.168.0.0/16,fd00::/32"
		}
	}
	c, err := topology.New(names.ClusterRouter, prefixes(subnets), prefixes("100.64.0.0/16,fd98::/64"))
	if err != nil {
		w.Fatal(err)
	}
	for name, s := range nodes {
		if c, err = c.WithNode(name, prefixes(s)); err != nil {
			w.Fatal(err)
		}
	}
	db := w.open()
	defer db.Close()
	want := map[nb.Unit][]nb.Row{topology.ClusterUnit: c.Rows()}
	for name := range nodes {
		// Without a Node, Kubernetes deletes the pods on it after a while.
		if _, err := cluster.CreateNode(w.Context(), name); err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatal(err)
		}
		want[topology.NodeUnit(name)] = c.NodeRows(name)
	}
	if _, err := (&nbsync.Sync{DB: db}).ApplyAll(w.Context(), want); err != nil {
		w.Fatal(err)
	}
	return c
}

// open connects to the world's database.
func (w *world) open() *ovsdb.DB {
	w.Helper()
	db, err := w.connect()
	if err != nil {
		w.Fatal(err)
	}
	return db
}

func (w *world) connect() (*ovsdb.DB, error) {
	return northbound.Open(context.Background(), strings.Split(w.central.NB, ",")...)
}

// args are the arguments of a watcher of this world.
func (w *world) args(more ...string) []string {
	return append([]string{
		"--overlay", "--ovn-nb=" + w.central.NB, "--k8s-api-server=" + w.url,
		"--k8s-api-token-file=" + filepath.Join(w.dir, "token"), "--k8s-ca-certificate=" + cluster.CAFile,
	}, more...)
}

// command makes a command that runs the watcher's main.
func (w *world) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "ovn-k8s-watcher"
	cmd.Env = append(os.Environ(), asWatcher+"=yes", "OVS_RUNDIR="+w.dir, "OVS_LOGDIR="+w.dir, "OVN_RUNDIR="+w.dir, "OVS_SYSCONFDIR="+w.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// once runs the watcher's main to its end.
func (w *world) once(args ...string) (status int, stdout, stderr string) {
	w.Helper()
	var out, err bytes.Buffer
	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		var exit *exec.ExitError
		if !errors.As(e, &exit) {
			w.Fatal(e)
		}
		return exit.ExitCode(), out.String(), err.String()
	}
	return 0, out.String(), err.String()
}

// A process is a running watcher.
type process struct {
	*world
	cmd *exec.Cmd
	log *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts a watcher. It is killed at the end of the test.
func (w *world) start(more ...string) *process {
	w.Helper()
	return w.run(w.command(w.args(more...)...))
}

// startAs starts a watcher as on another host, with a hostname of its own (UTS namespace). env is added to its
// environment.
func (w *world) startAs(hostname string, env ...string) *process {
	w.Helper()
	cmd := w.command(w.args("--unixctl=" + w.dir + "/" + hostname + ".ctl")...)
	cmd.Args = append([]string{"unshare", "--uts", "sh", "-c", "hostname " + hostname + ` && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	path, err := exec.LookPath("unshare")
	if err != nil {
		w.Fatal(err)
	}
	cmd.Path, cmd.Env = path, append(cmd.Env, env...)
	return w.run(cmd)
}

func (w *world) run(cmd *exec.Cmd) *process {
	w.Helper()
	p := &process{world: w, cmd: cmd, log: &safeBuffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.kill()
		if w.Failed() {
			w.Logf("log of the watcher:\n%s", p.log)
		}
	})
	return p
}

// kill kills the watcher, as by kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// eventually waits until cond holds. If it never does, the test fails with the text what.
func (w api) eventually(what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// nbctl runs ovn-nbctl.
func (w *world) nbctl(args ...string) string {
	w.Helper()
	out, err := w.central.NBCtl(args...)
	if err != nil {
		w.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// port returns a column of a logical port, or "".
func (w *world) port(name, column string) string {
	w.Helper()
	return w.nbctl("--bare", "--columns="+column, "find", "logical_switch_port", "name="+name)
}

// pod creates a pod bound to a node ("" for none).
func (w api) pod(name, node string, edit func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	p, err := cluster.CreatePod(w.Context(), "default", name, node, edit)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w api) delete(name string) {
	w.Helper()
	if err := cluster.DeletePod(w.Context(), "default", name); err != nil {
		w.Fatal(err)
	}
}

// annotation waits until a pod has a port and an annotation with the same addresses, and returns the annotation.
func (w *world) annotation(name string) annotation.Addresses {
	w.Helper()
	var a annotation.Addresses
	var seen string
	w.eventually("pod "+name+" has a port and an annotation that agree", func() bool {
		p, err := cluster.Client().CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		seen = p.Annotations[names.Annotation]
		a, err = annotation.Parse(seen)
		return err == nil && w.port("default_"+name, "addresses") == line(a)
	})
	return a
}

// line is the text of a port's addresses for a: MAC and IPs.
func line(a annotation.Addresses) string {
	s := a.MAC
	for _, ip := range a.IPs {
		s += " " + ip.Addr().String()
	}
	return s
}

// event waits for an Event about an object and returns its message.
func (w api) event(kind, name, reason string) string {
	w.Helper()
	return w.eventIn("default", kind, name, reason)
}

// eventIn is event for an object of a namespace.
func (w api) eventIn(namespace, kind, name, reason string) string {
	w.Helper()
	var message string
	w.eventually(fmt.Sprintf("an Event %s about %s %s", reason, kind, name), func() bool {
		events, err := cluster.Client().CoreV1().Events(namespace).List(w.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name + ",reason=" + reason,
		})
		if err != nil {
			w.Fatal(err)
		}
		if len(events.Items) == 0 {
			return false
		}
		message = events.Items[0].Message
		return true
	})
	return message
}

// insecure is a transport accepting every certificate: a test's proxy has no need to verify the API server's.
func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}

// httptestServer serves h until the test ends.
func httptestServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}
