package cni_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/lib/link"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// canary is an invalid token, to be searched for in places where no secret belongs.
const canary = "canary-7f3a"

// A world is one node with Open vSwitch and ovn-controller in a network namespace, OVN's central databases, and a
// Kubernetes control plane. The test acts as the watcher.
type world struct {
	kube    *kubetest.Cluster
	central *ovntest.Central
	dir     string // Open vSwitch's run directory
	netns   string // name of the node's namespace
	bin     string // the program to test: the stand-alone plugin, or the shim
	alone   string // the stand-alone plugin
	served  bool   // with the shim and the CNI server
	server  string // the CNI server
	procs   map[string]*reaper.Process
}

// TestMain keeps the names of network namespaces private to this program: they disappear with it, even if it is
// killed.
func TestMain(m *testing.M) {
	if os.Getenv(private) == "" && missing() == "" {
		if err := enterPrivateNames(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if os.Getenv(abandoned) != "" { // see TestNamespacesEndWithTheProgram
		_ = exec.Command("ip", "netns", "add", os.Getenv(abandoned)).Run()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(m.Run())
}

// Environment variables: private is set in the private mount namespace, abandoned names a namespace to create before
// the program kills itself.
const private, abandoned = "OVNK8S_TEST_CNI_PRIVATE", "OVNK8S_TEST_CNI_ABANDONED"

// enterPrivateNames executes this program again, as the same process, in a mount namespace with its own /run/netns,
// the directory of ip-netns(8), and /run/ovn-kubernetes, that of the CNI server. Later mounts are seen by the CNI server, as in a container with mount propagation.
func enterPrivateNames() error {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	const script = `mount --make-rshared / && mkdir -p /run/netns /run/ovn-kubernetes && mount -t tmpfs tmpfs /run/netns && mount -t tmpfs tmpfs /run/ovn-kubernetes && exec "$@"`
	args := append([]string{unshare, "--mount", "--propagation=private", "sh", "-c", script, "sh"}, os.Args...)
	return syscall.Exec(unshare, args, append(os.Environ(), private+"=1"))
}

// Findings, section 5: namespaces outlived a killed test program.
func TestNamespacesEndWithTheProgram(t *testing.T) {
	require.Nothing(t, require.Node, missing())
	name := fmt.Sprintf("cnitest-left%d", os.Getpid())
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, private+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, abandoned+"="+name)
	if err := cmd.Run(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the program ended by %v", err)
	}
	if _, err := os.Stat("/run/netns/" + name); err == nil {
		_ = exec.Command("ip", "netns", "del", name).Run()
		t.Errorf("namespace %s outlives the program that made it", name)
	}
}

// serial makes names unique.
var serial atomic.Int64

func missing() string {
	if os.Geteuid() != 0 {
		return "root"
	}
	for _, tool := range []string{"ip", "ovs-vswitchd", "ovs-vsctl", "ovn-controller", "ping", "ethtool", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return ovntest.Missing()
}

// newWorld starts a world, with the stand-alone plugin or with the CNI server, and removes all of it after the test.
func newWorld(t *testing.T, served bool) *world {
	t.Helper()
	require.Nothing(t, require.Node, missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	w := &world{netns: fmt.Sprintf("cni%d", os.Getpid()), procs: map[string]*reaper.Process{}, served: served}
	var err error
	if w.dir, err = os.MkdirTemp("", "cni"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(w.dir) })
	w.alone = filepath.Join(w.dir, "ovn-k8s-cni-overlay")
	w.bin = w.alone
	w.must(t, exec.Command("go", "build", "-o", w.alone, "../../ovn-k8s-cni-overlay"))
	if served {
		w.bin = filepath.Join(w.dir, "ovn-k8s-cni-shim")
		w.must(t, exec.Command("go", "build", "-o", w.bin, "../../ovn-k8s-cni-shim"))
		w.server = filepath.Join(w.dir, "cniserver")
		w.must(t, exec.Command("go", "build", "-o", w.server, "../../test/cniserver"))
	}

	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the first time it is built
	defer cancel()
	if w.kube, err = kubetest.Start(ctx, kubetest.Options{Without: []string{"kube-scheduler"}, Unlimited: true, Log: func(l string) { t.Log(l) }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kube.Close)
	if _, err := w.kube.CreateNode(ctx, "node1"); err != nil {
		t.Fatal(err)
	}
	if w.central, err = ovntest.Start(ovntest.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.central.Close)
	w.must(t, exec.Command("ip", "netns", "add", w.netns))
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", w.netns).Run() })
	w.must(t, w.in("ip", "link", "set", "lo", "up"))
	t.Cleanup(func() {
		for name := range w.procs {
			w.stop(name)
		}
	})
	w.startOVS(t)
	if served {
		w.startServer(t)
	}
	return w
}

// startOVS starts Open vSwitch with an empty database, and ovn-controller.
func (w *world) startOVS(t *testing.T) {
	t.Helper()
	w.must(t, exec.Command("ovsdb-tool", "create", w.dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema"))
	w.startOVSDB(t)
	w.vsctl(t, "--no-wait", "init")
	w.setIDs(t, append(host.BridgeSetting(), "system-id=node1", "ovn-remote="+w.central.SB, "ovn-encap-type=geneve", "ovn-encap-ip=127.0.0.1",
		"ovn-k8s-log-path="+w.dir+"/cni.log",
		"k8s-api-server="+w.forward(t), "k8s-api-token="+w.kube.Token, "k8s-ca-certificate="+w.kube.CAFile)...)
	w.startVswitchd(t)
	w.startController(t)
	w.nbctl(t, "ls-add", "node1", "--", "lr-add", "r",
		"--", "lrp-add", "r", "rtos-node1", "00:00:00:00:00:01", "10.1.0.1/16", "fd01::1/64",
		"--", "lsp-add", "node1", "stor-node1", "--", "lsp-set-type", "stor-node1", "router",
		"--", "lsp-set-addresses", "stor-node1", "router", "--", "lsp-set-options", "stor-node1", "router-port=rtos-node1")
	await(t, "br-int", func() bool { return w.in("ovs-vsctl", "br-exists", "br-int").Run() == nil })
}

func (w *world) startOVSDB(t *testing.T) {
	t.Helper()
	w.daemon(t, "ovsdb-server", "--remote=punix:"+w.dir+"/db.sock", w.dir+"/conf.db")
	await(t, "ovsdb-server", func() bool { return w.in("ovs-vsctl", "--no-wait", "show").Run() == nil })
}

func (w *world) startVswitchd(t *testing.T) {
	w.daemon(t, "ovs-vswitchd", append(host.VswitchdArgs(), "unix:"+w.dir+"/db.sock")...)
}

func (w *world) startController(t *testing.T) {
	w.daemon(t, "ovn-controller", "unix:"+w.dir+"/db.sock")
}

func (w *world) daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	file := filepath.Join(w.dir, name)
	args = append([]string{"-vconsole:off", "--log-file=" + file + ".log", "--pidfile=" + file + ".pid"}, args...)
	p, err := reaper.Start(w.in, "env", append([]string{"--ignore-signal=XFSZ", name}, args...)...) // see limitOVSDB
	if err != nil {
		t.Fatal(err)
	}
	w.procs[name] = p
}

func (w *world) stop(name string) {
	if p := w.procs[name]; p != nil {
		p.Stop()
		delete(w.procs, name)
	}
}

// forward lets the node reach the API server, which listens on this host's loopback interface only. It returns the
// server's URL there.
func (w *world) forward(t *testing.T) string {
	t.Helper()
	ns, err := link.OpenNamespace("/run/netns/" + w.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	relay(t, l, "tcp", strings.TrimPrefix(w.kube.URL, "https://"), func(server, client net.Conn) { _, _ = io.Copy(server, client) })
	return "https://" + l.Addr().String()
}

// relay connects each client of a listener with a server. up copies from the client to the server until either is gone.
func relay(t *testing.T, l net.Listener, network, address string, up func(server, client net.Conn)) {
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { up(server, client); _ = server.Close() }()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
		}
	}()
}

// in is a command inside the node.
func (w *world) in(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", w.netns, name}, args...)...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+w.dir, "OVS_LOGDIR="+w.dir, "OVS_DBDIR="+w.dir, "OVN_RUNDIR="+w.dir, "OVS_SYSCONFDIR="+w.dir)
	return cmd
}

func (w *world) must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) vsctl(t *testing.T, args ...string) string {
	t.Helper()
	return w.must(t, w.in("ovs-vsctl", append([]string{"--timeout=60"}, args...)...))
}

func (w *world) setIDs(t *testing.T, ids ...string) {
	t.Helper()
	args := []string{"--no-wait", "set", "Open_vSwitch", "."}
	for _, id := range ids {
		k, v, _ := strings.Cut(id, "=")
		args = append(args, fmt.Sprintf("external_ids:%s=%q", k, v))
	}
	w.vsctl(t, args...)
}

func (w *world) nbctl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := w.central.NBCtl(args...); err != nil {
		t.Fatal(err)
	}
}

// await polls for a condition without events.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit.Of(time.Minute)); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

func (w *world) log(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(w.dir + "/cni.log")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// traces lists leftovers of sandboxes on the node.
func (w *world) traces(t *testing.T) []string {
	t.Helper()
	var left []string
	out := w.must(t, w.in("ip", "-o", "link", "show", "type", "veth"))
	for l := range strings.Lines(out) {
		left = append(left, "link: "+strings.TrimSpace(l))
	}
	if w.procs["ovsdb-server"] == nil {
		return left
	}
	for _, table := range []string{"Interface", "QoS"} {
		out = w.vsctl(t, "--columns=external_ids", "-f", "csv", "-d", "bare", "--no-headings", "list", table)
		for l := range strings.Lines(out) {
			if strings.Contains(l, "ovn-k8s-") {
				left = append(left, table+": "+strings.TrimSpace(l))
			}
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/var/run/netns/[0-9]*%08x*", os.Getpid())) // names of sandboxes begin with a letter
	if err != nil {
		t.Fatal(err)
	}
	return append(left, files...)
}

func (w *world) clean(t *testing.T, when string) {
	t.Helper()
	if left := w.traces(t); len(left) > 0 {
		t.Errorf("left %s:\n%s", when, strings.Join(left, "\n"))
	}
}
