package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nicbridge"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// shimDir has a program named ovn-k8s-cni-shim.
var shimDir string

// This test is also the program on the hosts: NAME.test node|clean|check OPTION=VALUE… and NAME.test watchdog BRIDGE.
// NAME.test move NIC is an operator's nics-to-bridge that nobody confirms.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"node", "clean", "check", "move", WatchCommand}, os.Args[1]) {
		if err := program(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shimDir = dir
	if out, err := exec.Command("go", "build", "-o", dir+"/ovn-k8s-cni-shim", "ovn-k8s/ovn-k8s-cni-overlay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building: %v: %s\n", err, out)
		return 1
	}
	defer closePlane()
	return m.Run()
}

// program runs the roles of a node's process, its clean-up, its comparison, a move, or the guard of one.
func program(what string, args []string) error {
	if what == WatchCommand {
		return Watch(context.Background(), "", os.Stderr, args[0])
	}
	if what == "move" {
		c := nicbridge.Command{Names: args, ConfirmWithin: 10 * time.Second, Watch: WatchCommand, Out: os.Stdout, Err: os.Stderr}
		return nicbridge.Move(context.Background(), nicbridge.ToBridge, c)
	}
	flags := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		flags[name] = value
	}
	log, err := vlog.New(Program, vlog.Options{}, os.Stderr)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if what == "clean" {
		return Clean(ctx, Options{Name: flags["cleanup-node"], Flags: flags, Log: log.Module})
	}
	n := &Node{Options{Name: flags["init-node"], Flags: flags, Log: log.Module, Informers: kube.Share(), Server: server}}
	r := settings.Runtime{Flags: flags, Resolve: options.Config, Log: log.Module}
	if what == "check" {
		return compare(ctx, r, n)
	}
	return r.Run(ctx, func() {}, n.Role(), HelperRole(n.Helper()))
}

// compare prints the differences of a host.
func compare(ctx context.Context, r settings.Runtime, n *Node) error {
	sw, err := r.ConnectSwitch(ctx)
	if err != nil {
		return err
	}
	defer sw.Close()
	cfg, err := r.Load(ctx, sw)
	if err != nil {
		return err
	}
	s := settings.Session{Config: cfg, Switch: sw}
	ofNode, err := n.Differences(ctx, s)
	ofHelper, failed := n.Helper().Differences(ctx, s)
	fmt.Println(strings.Join(slices.Concat(ofNode, ofHelper), "\n"))
	return errors.Join(err, failed)
}

// server is ready when a file says so, and fails with the text of another one.
func server(ctx context.Context, _ settings.Session, _ *kube.Cluster, ready func()) error {
	if text, err := os.ReadFile("/etc/server-fails"); err == nil {
		return errors.New(string(text))
	}
	for {
		if _, err := os.Stat("/etc/server-not-ready"); err != nil {
			ready()
			<-ctx.Done()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var plane struct {
	sync.Mutex
	kube *kubetest.Cluster
}

// startPlane starts the control plane of all tests.
func startPlane(t *testing.T) *kubetest.Cluster {
	t.Helper()
	plane.Lock()
	defer plane.Unlock()
	if plane.kube != nil {
		return plane.kube
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // the first time it is built
	defer cancel()
	k, err := kubetest.Start(ctx, kubetest.Options{
		Advertise: host.FabricIPv4().String(), Names: []string{host.FabricIPv4().String()}, ServiceCIDR: services,
		Without: []string{"kube-controller-manager", "kube-scheduler"}, Log: func(l string) { t.Log(l) },
	})
	if err != nil {
		t.Fatal(err)
	}
	plane.kube = k
	return k
}

func closePlane() {
	if plane.kube != nil {
		plane.kube.Close()
	}
}

const (
	ranges   = "10.128.0.0/14/23,fd01::/48/64"
	services = "172.30.0.0/16,fd02::/112"
)

// A world is one host, and a control plane.
type world struct {
	*host.Host
	t      *testing.T
	ctx    context.Context
	kube   *kubetest.Cluster
	fabric *host.Fabric
	api    string
	cut    func() // ends the connection to the API server
	role   *reaper.Process
	log    strings.Builder // of former processes
	loose  *regexp.Regexp  // parts of the state that a test does not compare; nil: none
}

// newWorld makes a host of this name without Open vSwitch, and no Node.
func newWorld(t *testing.T, name string) *world {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	w := &world{t: t, kube: startPlane(t)}
	ctx, cancel := context.WithTimeout(context.Background(), limit.Of(4*time.Minute))
	t.Cleanup(cancel)
	w.ctx = ctx
	var err error
	if w.fabric, err = host.NewFabric(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.fabric.Close)
	w.connectAPI()
	if w.Host, err = host.New(host.Options{Name: name, Fabric: w.fabric, SecondNIC: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := w.Install(filepath.Join(shimDir, "ovn-k8s-cni-shim")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

func (w *world) connectAPI() {
	w.t.Helper()
	u, err := url.Parse(w.kube.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		w.t.Fatal(err)
	}
	if w.cut, err = w.fabric.Forward(port, u.Host); err != nil {
		w.t.Fatal(err)
	}
	w.api = "https://" + netip.AddrPortFrom(host.FabricIPv4(), uint16(port)).String()
}

// args are the arguments of the program.
func (w *world) args(what string, more ...string) []string {
	name := map[string]string{"node": "init-node=", "check": "init-node=", "clean": "cleanup-node="}[what] + w.Name
	return append([]string{
		what, name, "k8s-apiserver=" + w.api, "k8s-token=" + w.kube.Token, "k8s-cacert=" + w.kube.CAFile, "cluster-subnets=" + ranges,
		"k8s-service-cidr=" + services, "nb-address=tcp:198.18.0.99:6641", "sb-address=tcp:198.18.0.99:6642",
	}, more...)
}

// start starts the node's process.
func (w *world) start(more ...string) {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.role, err = w.Start(self, w.args("node", more...)...); err != nil {
		w.t.Fatal(err)
	}
}

// stop kills the node's process.
func (w *world) stop() {
	if w.role != nil {
		w.role.Stop()
		w.log.WriteString(w.role.Output() + "--- stopped\n")
		w.role = nil
	}
}

// clean runs the clean-up, and returns its log.
func (w *world) clean(more ...string) string {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	_, log, err := w.Run(w.ctx, self, w.args("clean", more...)...)
	w.log.WriteString(log)
	if err != nil {
		w.t.Fatal(err)
	}
	return log
}

// check runs the comparison of the host with the node. The CNI server of these tests has no socket, and no ovn-controller runs.
func (w *world) check(options ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	found, _, err := w.Run(w.ctx, self, w.args("check", options...)...)
	const want = `! ovn-controller is stopped: no process answers at its control socket /var/run/ovn/ovn-controller.*.ctl: start ovn-controller
! nothing serves CNI requests of this host: start ovnkube`
	if err == nil && strings.TrimSpace(found) != want {
		err = errors.New(found)
	}
	return err
}

// newNode makes the host of a Node with some subnets, with Open vSwitch, but without ovnkube.
func newNode(t *testing.T, name string, subnets ...string) *world {
	t.Helper()
	w := newWorld(t, name)
	if err := w.StartSwitch(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.addNode()
	w.assign(subnets...)
	return w
}

// addNode makes the Node.
func (w *world) addNode() {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(w.Name)}}
	n, err := w.kube.Client().CoreV1().Nodes().Create(w.ctx, n, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = w.kube.Client().CoreV1().Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{})
	})
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: w.IPv4().String()}}
	if _, err := w.kube.Client().CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// assign gives the Node subnets.
func (w *world) assign(subnets ...string) {
	w.t.Helper()
	var all []netip.Prefix
	for _, s := range subnets {
		all = append(all, netip.MustParsePrefix(s))
	}
	w.annotate(nodesubnet.Annotations(all))
}

func (w *world) annotate(annotations map[string]string) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err == nil {
		_, err = w.kube.Client().CoreV1().Nodes().Patch(w.ctx, strings.ToLower(w.Name), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n, err := w.kube.Client().CoreV1().Nodes().Get(w.ctx, strings.ToLower(w.Name), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// script runs a shell script in the host.
func (w *world) script(text string) string {
	w.t.Helper()
	out, err := w.Script(w.ctx, text)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// await waits until a script succeeds.
func (w *world) await(script string) {
	w.t.Helper()
	w.until("script "+script, func() error {
		_, err := w.Script(w.ctx, script)
		return err
	})
}

// until waits for a condition.
func (w *world) until(what string, done func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, limit.Of(45*time.Second))
	defer cancel()
	if err := poll.Until(ctx, done); err != nil {
		log := ""
		if w.role != nil {
			log = w.role.Output()
		}
		w.t.Fatalf("%s: %v\n%s", what, err, log)
	}
}

// says waits for a text in the log of the node's process.
func (w *world) says(text string) {
	w.t.Helper()
	w.until("log", func() error {
		if !strings.Contains(w.role.Output(), text) {
			return fmt.Errorf("no line with %q", text)
		}
		return nil
	})
}

// complete waits until the host is complete.
func (w *world) complete() {
	w.t.Helper()
	w.says("host is complete")
	w.await("test -e /etc/cni/net.d/10-ovn-kubernetes.conflist")
}

// state is the part of the host's state that the role changes.
func (w *world) state() string {
	w.t.Helper()
	text := w.script(`for i in $(seq 600); do ip -6 -o address show tentative | grep -q . || break; sleep 0.05; done
		for d in $(ls /sys/class/net | grep -v "ovs-$OVNK8S_TEST_DATAPATH\|br-int"); do ip -o address show dev $d; done | sed 's/^[0-9]*: //; s/[0-9]*sec/TIME/g'
		{ ip route show table all; ip -6 route show table all; } | grep -v -e ' br-int ' -e ^anycast | sort; ip rule; ip -6 rule; { ` + host.RulesScript + `; } | grep -v -e ^# -e "^:[A-Z]* " -e "^[*]" -e COMMIT | sed "s/# handle.*//"
		ovs-vsctl -f csv --columns=name,external_ids,type,options,mac list Interface | grep -v ^br-int | sort; ovs-vsctl -f csv --columns=name,external_ids,other_config list Bridge | grep -v ^br-int | sort
		ovs-vsctl get Open_vSwitch . external_ids; find /etc/cni /opt/cni /var/run/ovn-kubernetes -type f -printf '%p %m\n' 2>/dev/null | sort; cat /etc/cni/net.d/* 2>/dev/null || true`)
	if w.loose != nil {
		text = w.loose.ReplaceAllString(text, "")
	}
	return text
}

// becomes waits until the host's state is as before.
func (w *world) becomes(what, before string) {
	w.t.Helper()
	w.until(what, func() error {
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(w.state(), "\n")); diff != "" {
			return errors.New("(-before +after)\n" + diff)
		}
		return nil
	})
}

// same waits until the host's state has the same lines as before.
func (w *world) same(what string, before []string) {
	w.t.Helper()
	w.until(what, func() error {
		if diff := cmp.Diff(before, sorted(w.state())); diff != "" {
			return errors.New("(-before +after)\n" + diff)
		}
		return nil
	})
}

// claims waits until the annotation of the gateway has a text.
func (w *world) claims(text string) {
	w.t.Helper()
	w.until("annotation", func() error {
		if got := w.node().Annotations[names.GatewayAnnotation]; !strings.Contains(got, text) {
			return fmt.Errorf("no %s in %s", text, got)
		}
		return nil
	})
}

// has fails the test if a text lacks another.
func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
