package cni_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"

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
	p, err := reaper.Start(w.in, name, args...)
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
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(w.kube.URL, "https://"))
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return "https://" + l.Addr().String()
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

// A sandbox is a pod's network namespace, as created by a runtime.
type sandbox struct {
	w         *world
	pod       string // in namespace default
	id, netns string
	ip4, ip6  string // empty: none
	uid       string
}

// sandbox creates a pod and its sandbox, without addresses.
func (w *world) sandbox(t *testing.T, edit func(*corev1.Pod)) *sandbox {
	t.Helper()
	n := serial.Add(1)
	s := &sandbox{w: w, pod: fmt.Sprintf("pod-%d", n), ip4: fmt.Sprintf("10.1.%d.%d", n/200, n%200+10)}
	pod, err := w.kube.CreatePod(t.Context(), "default", s.pod, "node1", edit)
	if err != nil {
		t.Fatal(err)
	}
	s.uid = string(pod.UID)
	s.renew(t)
	return s
}

// renew gives the pod a new sandbox, as the kubelet does when the sandbox has died.
func (s *sandbox) renew(t *testing.T) {
	t.Helper()
	s.id = fmt.Sprintf("%08x%056x", os.Getpid(), serial.Add(1))
	s.id = s.id[56:] + s.id[:56] // the first 15 characters make the device's name
	s.netns = "/run/netns/cnitest-" + s.id[:8] + fmt.Sprint(os.Getpid())
	name := filepath.Base(s.netns)
	s.w.must(t, exec.Command("ip", "netns", "add", name))
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
}

// mac is the pod's, as the watcher chooses it.
func (s *sandbox) mac() string {
	ip := net.ParseIP(s.ip4).To4()
	return fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", ip[0], ip[1], ip[2], ip[3])
}

// annotation is the pod's, as the watcher writes it.
func (s *sandbox) annotation() string {
	ip, gw := s.ip4+"/16", "10.1.0.1"
	if s.ip6 != "" {
		ip, gw = ip+","+s.ip6+"/64", gw+",fd01::1"
	}
	return fmt.Sprintf(`{"ip_address": %q, "mac_address": %q, "gateway_ip": %q}`, ip, s.mac(), gw)
}

// assign acts as the watcher for the pod.
func (s *sandbox) assign(t *testing.T) {
	t.Helper()
	s.w.nbctl(t, s.port()...)
	s.annotate(t, s.annotation())
}

// port is the pod's logical port as arguments of ovn-nbctl.
func (s *sandbox) port() []string {
	lsp := "default_" + s.pod
	addr := strings.TrimSpace(s.mac() + " " + s.ip4 + " " + s.ip6)
	return []string{"lsp-add", "node1", lsp, "--", "lsp-set-addresses", lsp, addr, "--", "lsp-set-port-security", lsp, addr,
		"--", "lsp-set-options", lsp, "iface-id-ver=" + s.uid}
}

func (s *sandbox) annotate(t *testing.T, value string) {
	t.Helper()
	s.annotateAs(t, "ovn", value)
}

func (s *sandbox) annotateAs(t *testing.T, key, value string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.kube.Client().CoreV1().Pods("default").Patch(context.Background(), s.pod, ktypes.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// A run is one call of the plugin: its input and its process.
type run struct {
	command, version string // the latter defaults to 1.1.0
	env              map[string]string
	setup            string         // shell commands before, in mounts of its own
	stdin            string         // replaces the configuration
	program          string         // instead of the world's
	conf             map[string]any // adds to it

	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	err    error
}

// A result is the plugin's output, in any version, or an error.
type result struct {
	CNIVersion string
	Interfaces []struct {
		Name, Mac, Sandbox string
		Mtu                int
	}
	IPs []struct {
		Address, Gateway string
		Interface        *int
	}
	Routes       []struct{ Dst, GW string }
	Code         int
	Msg, Details string
}

// start calls the plugin for a sandbox, as a runtime does.
func (s *sandbox) start(t *testing.T, r run) *run {
	t.Helper()
	env := map[string]string{
		"CNI_COMMAND": r.command, "CNI_CONTAINERID": s.id, "CNI_NETNS": s.netns, "CNI_IFNAME": "eth0", "CNI_PATH": s.w.dir,
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + s.pod + ";K8S_POD_INFRA_CONTAINER_ID=" + s.id + ";K8S_POD_UID=" + s.uid,
	}
	for k, v := range r.env {
		env[k] = v
	}
	if r.version == "" {
		r.version = "1.1.0"
	}
	conf := map[string]any{"cniVersion": r.version, "name": "ovn-k8s", "type": "ovn-k8s-cni-overlay"}
	for k, v := range r.conf {
		conf[k] = v
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin != "" {
		stdin = []byte(r.stdin)
	}
	out := r
	out.cmd = s.w.in("sh", "-c", r.setup+"\nexec "+cmp.Or(r.program, s.w.bin))
	for k, v := range env {
		out.cmd.Env = append(out.cmd.Env, k+"="+v)
	}
	out.cmd.Stdin, out.cmd.Stdout, out.cmd.Stderr = bytes.NewReader(stdin), &out.stdout, &out.stderr
	if err := out.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// end waits for the plugin and parses its output.
func (r *run) end(t *testing.T) result {
	t.Helper()
	r.err = r.cmd.Wait()
	var res result
	if r.stdout.Len() > 0 {
		if err := json.Unmarshal(r.stdout.Bytes(), &res); err != nil {
			t.Errorf("%s printed %q: %v", r.command, r.stdout.String(), err)
		}
	}
	if (r.err != nil) != (res.Code != 0) {
		t.Errorf("%s: %v with output %q and stderr %q", r.command, r.err, r.stdout.String(), r.stderr.String())
	}
	return res
}

// call calls the plugin and returns its output.
func (s *sandbox) call(t *testing.T, r run) result {
	t.Helper()
	return s.start(t, r).end(t)
}

// add is a successful ADD.
func (s *sandbox) add(t *testing.T) result {
	t.Helper()
	res := s.call(t, run{command: "ADD"})
	if res.Code != 0 {
		t.Fatalf("ADD of %s: %+v", s.pod, res)
	}
	return res
}

func (w *world) log(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(w.dir + "/cni.log")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *sandbox) host() string { return s.id[:15] }

// exec returns a command inside the sandbox.
func (s *sandbox) exec(name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", filepath.Base(s.netns), name}, args...)...)
}

// ping sends one packet, once.
func (s *sandbox) ping(t *testing.T, to string) {
	t.Helper()
	if out, err := s.exec("ping", "-n", "-c1", "-W3", to).CombinedOutput(); err != nil {
		t.Errorf("ping from %s to %s: %v\n%s", s.pod, to, err, out)
	}
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

func (r *run) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil && !strings.Contains(err.Error(), "finished") {
		t.Fatal(err)
	}
}
