package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/docs"
	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/flow"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// asHelper makes the test binary run as the helper.
const asHelper = "OVNK8S_TEST_AS_HELPER"

// cluster is the control plane of all tests; nil if the machine has none. There
// are no controllers: endpoint slices are as the tests write them.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(asHelper) != "" {
		os.Exit(run(os.Args[1:], cli.OS()))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if kubetest.Missing() == "" && host.Missing() == "" {
		var err error
		cluster, err = kubetest.Start(context.Background(), kubetest.Options{
			Without:   []string{"kube-scheduler", "kube-controller-manager"},
			Advertise: host.FabricIPv4().String(), Names: []string{host.FabricIPv4().String()},
			ServiceCIDR: "172.30.0.0/16,fd02::/112",
			Log:         func(l string) { fmt.Fprintln(os.Stderr, l) },
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer cluster.Close()
		if token, err = account(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// token is the token of the helper's account, with the rights of docs/rbac.yaml.
var token string

func account(ctx context.Context) (string, error) {
	rbac, err := fs.ReadFile(docs.Files, "rbac.yaml")
	if err != nil {
		return "", err
	}
	if err := cluster.Apply(ctx, rbac); err != nil {
		return "", err
	}
	return cluster.ServiceAccountToken(ctx, "kube-system", "ovn-k8s-gateway-helper")
}

// patience bounds every wait.
var patience = limit.Of(time.Minute)

// An api has the objects of a test in the API server.
type api struct {
	*testing.T
	ctx context.Context
}

// A world is a host with eth0 in breth0, shared with its gateway router.
type world struct {
	api
	*host.Host
	fabric *host.Fabric
	unplug func() // cuts the host from the API server
}

const apiPort = 6443

func newWorld(t *testing.T) *world {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(context.Background(), limit.Of(4*time.Minute))
	t.Cleanup(cancel)
	fabric, err := host.NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fabric.Close)
	w := &world{api: api{t, ctx}, fabric: fabric}
	if w.Host, err = host.New(host.Options{Name: "node1", Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.plug()
	if err := w.StartOVS(ctx); err != nil {
		t.Fatal(err)
	}
	w.script(fmt.Sprintf("ovs-vsctl --may-exist add-br br-int -- set Bridge br-int datapath_type=$OVNK8S_TEST_DATAPATH fail_mode=secure -- set Open_vSwitch . external_ids:ovn-encap-ip=%v", w.IPv4()))
	w.write("/etc/openvswitch/ovn-k8s-gateway-helper.token", token)
	ca, err := os.ReadFile(cluster.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	w.write("/etc/openvswitch/k8s-ca.crt", string(ca))
	w.cleanAPI()
	t.Cleanup(w.cleanAPI)
	return w
}

// plug connects the host with the API server.
func (w *world) plug() {
	w.Helper()
	stop, err := w.fabric.Forward(apiPort, strings.TrimPrefix(cluster.URL, "https://"))
	if err != nil {
		w.Fatal(err)
	}
	w.unplug = stop
}

func (w *world) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(w.Path(name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// cleanAPI deletes the tests' objects from the API server.
func (w api) cleanAPI() {
	w.Helper()
	ctx := context.Background()
	services, err := cluster.Client().CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, s := range services.Items {
		if s.Name != "kubernetes" {
			_ = cluster.Client().CoreV1().Services("default").Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
	}
	if err := cluster.Client().DiscoveryV1().EndpointSlices("default").DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "!=kubernetes"}); err != nil {
		w.Fatal(err)
	}
}

// service creates a Service with one port; edit may change it.
func (w api) service(name string, edit func(*corev1.Service)) *corev1.Service {
	w.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30082}},
		},
	}
	if edit != nil {
		edit(s)
	}
	status := s.Status
	s, err := cluster.Client().CoreV1().Services("default").Create(w.ctx, s, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if len(status.LoadBalancer.Ingress) > 0 {
		s.Status = status
		if s, err = cluster.Client().CoreV1().Services("default").UpdateStatus(w.ctx, s, metav1.UpdateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	return s
}

// update changes a Service.
func (w api) update(name string, edit func(*corev1.Service)) {
	w.Helper()
	api := cluster.Client().CoreV1().Services("default")
	s, err := api.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	edit(s)
	if _, err := api.Update(w.ctx, s, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w api) deleteService(name string) {
	w.Helper()
	if err := cluster.Client().CoreV1().Services("default").Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// endpoints writes a slice of a Service with one target port for all ports: each endpoint is "ADDRESS@NODE".
func (w api) endpoints(s *corev1.Service, port int32, hosts ...string) {
	w.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: s.Name + "-4", Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, p := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &port})
	}
	for _, h := range hosts {
		addr, node, _ := strings.Cut(h, "@")
		if strings.Contains(addr, ":") {
			slice.AddressType, slice.Name = discoveryv1.AddressTypeIPv6, s.Name+"-6"
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &node})
	}
	api := cluster.Client().DiscoveryV1().EndpointSlices("default")
	_, err := api.Update(w.ctx, slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = api.Create(w.ctx, slice, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) script(text string) string {
	w.Helper()
	out, err := w.Script(w.ctx, text)
	if err != nil {
		w.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// shared are the options of a helper on breth0.
var shared = []string{"--physical-bridge=breth0", "--physical-interface=eth0"}

// args are the arguments of a helper.
func (w *world) args(more ...string) []string {
	return append([]string{
		fmt.Sprintf("--k8s-api-server=https://%v:%d", host.FabricIPv4(), apiPort),
		"--k8s-api-token-file=/etc/openvswitch/ovn-k8s-gateway-helper.token", "--node-name=node1",
	}, more...)
}

// command makes a command with the helper's main in the host.
func (w *world) command(args ...string) (*exec.Cmd, string) {
	w.Helper()
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	link := "/usr/local/bin/ovn-k8s-gateway-helper"
	_ = os.Symlink(self, w.Path(link))
	cmd := w.Command(link, args...)
	cmd.Env = append(host.Environment(), asHelper+"=yes")
	return cmd, link
}

// once runs the helper's main to its end.
func (w *world) once(args ...string) (status int, stderr string) {
	w.Helper()
	cmd, _ := w.command(args...)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	_, stderr, err := host.RunCommand(ctx, cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	if exit != nil {
		return exit.ExitCode(), stderr
	}
	return 0, stderr
}

// start starts a helper, which ends with the test at the latest, and waits until it knows the Services.
func (w *world) start(args ...string) *reaper.Process {
	w.Helper()
	p := w.launch(args...)
	w.eventually("the helper knows the Services", func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   true") })
	return p
}

// startBlind starts a helper on breth0 without access to the API server.
func (w *world) startBlind() *reaper.Process {
	w.Helper()
	p := w.launch(shared...)
	w.eventually("the helper answers", func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   false") })
	return p
}

func (w *world) launch(args ...string) *reaper.Process {
	w.Helper()
	return w.launchBare(w.args(append([]string{"--pidfile"}, args...)...)...)
}

// launchBare starts a helper with no other arguments.
func (w *world) launchBare(args ...string) *reaper.Process {
	w.Helper()
	link := "/usr/local/bin/ovn-k8s-gateway-helper"
	w.command()
	p, err := reaper.Start(func(name string, args ...string) *exec.Cmd {
		cmd := w.Command(name, args...)
		cmd.Env = append(host.Environment(), asHelper+"=yes")
		return cmd
	}, link, args...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.Stop()
		if w.Failed() {
			w.Logf("log of the helper:\n%s", p.Output())
		}
	})
	return p
}

func (w *world) appctl(args ...string) string {
	out, _, err := w.Host.Run(w.ctx, "ovs-appctl", append([]string{"-t", "ovn-k8s-gateway-helper", "--timeout=60"}, args...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// eventually waits until cond holds and returns the time waited.
func (w *world) eventually(what string, cond func() bool) time.Duration {
	w.Helper()
	start := time.Now()
	for ; !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			w.Fatalf("not within %s: %s", patience, what)
		}
	}
	return time.Since(start)
}

// flows lists the bridge's flows.
func (w *world) flows() []flow.Flow {
	w.Helper()
	out, _, err := w.Host.Run(w.ctx, "ovs-ofctl", "--no-stats", "--no-names", "dump-flows", "breth0")
	if err != nil {
		return nil
	}
	var all []flow.Flow
	for line := range strings.Lines(out) {
		f, err := flow.Parse(line)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// has reports whether the bridge has flows of ours, "MATCH -> ACTIONS" each, in table 0 unless a table is named.
func (w *world) has(want ...string) bool {
	w.Helper()
	is := map[string]bool{}
	for _, f := range w.flows() {
		if f.Cookie == bridgeflows.Cookie {
			is[line(f)] = true
		}
	}
	for _, l := range want {
		if !is[l] {
			return false
		}
	}
	return len(is) > 0
}

func line(f flow.Flow) string {
	return fmt.Sprintf("table=%d,priority=%d,%s -> %s", f.Table, f.Priority, f.Match, f.Actions)
}

// routed reports whether a host has the helper's route to the cluster's ServiceCIDR, if there are ServiceCIDRs at all.
func routed(w *world) bool {
	w.Helper()
	return !kubetest.Has(kubetest.ServiceCIDRs) || strings.Contains(w.script("ip route show proto 47"), "172.30.0.0/16 via 10.128.1.1")
}

// ofport returns a port's number in the database.
func (w *world) ofport(name string) string {
	w.Helper()
	return w.script("ovs-vsctl --timeout=60 get Interface " + name + " ofport")
}

// pidfile returns the process of a pidfile in Open vSwitch's run directory.
func (w *world) pidfile(name string) string {
	text, _ := os.ReadFile(filepath.Join(w.Path("/run/openvswitch"), name))
	return strings.TrimSpace(string(text))
}
