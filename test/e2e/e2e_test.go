// Package e2e tests the project's programs together in a complete cluster.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// cluster is shared by all tests: a master and two minions with everything
// installed. It is nil if the machine cannot run it.
var cluster *world.World

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if world.Missing() != "" {
		return m.Run()
	}
	bin, err := os.MkdirTemp("", "e2e")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-trimpath", "-o", bin+"/")
	programs := world.Programs()
	if together() {
		programs = append(programs, world.Roles)
	}
	if ovnkube() {
		programs = append(programs, world.OVNKube()...)
	}
	for _, p := range programs {
		build.Args = append(build.Args, "ovn-k8s/"+p)
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("building the programs: %w: %s", err, out))
	}
	ctx := context.Background()
	w, err := world.New(ctx, world.Options{Together: together(), OVNKube: ovnkube(), Log: func(l string) { fmt.Fprintln(os.Stderr, l) }})
	if err != nil {
		return fail(err)
	}
	defer w.Close()
	if err := w.Install(ctx, bin); err != nil {
		return fail(err)
	}
	if err := w.StartKubelets(ctx); err != nil {
		return fail(err)
	}
	cluster = w
	return max(m.Run(), aborts())
}

// together reports whether the tests run with the master's watcher and gateway helper in one process.
func together() bool { return os.Getenv("OVNK8S_TEST_ROLES") == "together" }

// ovnkube reports whether ovnkube builds the cluster of the tests.
func ovnkube() bool { return os.Getenv("OVNK8S_TEST_OVNKUBE") == "1" }

// watcher and helper are the names of the processes with the watcher and the gateway helper, by which ovs-appctl, pidfiles
// and logs call them.
func watcher() string { return either("ovn-k8s-watcher") }
func helper() string  { return either("ovn-k8s-gateway-helper") }

// plugin is the name of the log with the plugin's work.
func plugin() string { return either("ovn-k8s-cni-overlay") }

func either(program string) string {
	if ovnkube() {
		return "ovnkube"
	}
	return program
}

// ofWatcher is a control command of the watcher, that the gateway helper has, too.
func ofWatcher(command string) string {
	if ovnkube() {
		return "master/" + command
	}
	return command
}

// ofPrograms skips a test of the programs for the roles of a host, if ovnkube has them here. Its counterpart for ovnkube is
// in the package of tests named.
func ofPrograms(t *testing.T, counterpart string) {
	t.Helper()
	if ovnkube() {
		t.Skip("it is about other programs than ovnkube, which is tested in " + counterpart)
	}
}

// newer skips a test of a feature that Kubernetes has since release, such as "1.33", with an older control plane.
func newer(t *testing.T, feature, release string) {
	t.Helper()
	if lacks := kubetest.Lacks(feature, release); lacks != "" {
		t.Skip(lacks)
	}
}

// logOf is the log of a process such as watcher() and helper().
func logOf(process string) string { return "/var/log/openvswitch/" + process + ".log" }

// aborts returns 1 if a daemon of Open vSwitch or OVN aborted, for any reason.
func aborts() int {
	status := 0
	for _, n := range cluster.Nodes {
		lines, err := n.Host.Aborts()
		if err != nil {
			return fail(err)
		}
		for _, l := range lines {
			status = fail(errors.New(l))
		}
	}
	return status
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// patience bounds every wait.
var patience = limit.Of(time.Minute)

// pods creates pods (where maps names to nodes) and returns them when they run. At
// the end of the test it deletes them and checks that nothing is left.
func pods(t *testing.T, where map[string]string, edits ...func(*corev1.Pod)) map[string]world.Endpoint {
	t.Helper()
	require.Nothing(t, require.Cluster, world.Missing())
	edit := func(p *corev1.Pod) {
		app, _, _ := strings.Cut(p.Name, "-") // the label selected by Services
		p.Labels = map[string]string{world.AppLabel: app}
		for _, e := range edits {
			e(p)
		}
	}
	for name, node := range where {
		if _, err := cluster.Kube.CreatePod(t.Context(), "default", name, node, edit); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { remove(t, where) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := map[string]world.Endpoint{}
	for name := range where {
		e, err := cluster.AwaitPod(ctx, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = e
	}
	return out
}

// remove deletes pods and waits until the kubelets have completed the deletion.
func remove(t *testing.T, where map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	api := cluster.Kube.Client().CoreV1().Pods("default")
	for name := range where {
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	eventually(t, "the pods are gone", func() bool {
		list, err := api.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	for _, n := range cluster.Nodes {
		var left string
		eventually(t, n.Name+" has nothing left of a pod", func() bool {
			left = sh(t, n, `ovs-vsctl --bare --columns=name find interface external_ids:sandbox!=none
				ovs-vsctl --bare --columns=_uuid find qos external_ids:ovn-k8s-port!=none
				ip -o link show type veth | grep -v ": eth[01]@" || :`)
			return left == ""
		}, &left)
	}
	consistent(t)
}

// eventually waits until cond holds. If it never does, the test fails with what
// (the condition's name) and the current details.
func eventually(t *testing.T, what string, cond func() bool, details ...*string) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			for _, d := range details {
				what += ": " + *d
			}
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// consistent waits until the watcher's --check finds no difference: a restarted
// watcher would write nothing.
func consistent(t *testing.T) {
	t.Helper()
	var differs string
	eventually(t, "--check finds nothing", func() bool {
		err := cluster.Check(context.Background())
		differs = fmt.Sprint(err)
		return err == nil
	}, &differs)
}

// sh runs a shell script on a node.
func sh(t *testing.T, n *world.Node, script string) string {
	t.Helper()
	out, err := n.Script(context.Background(), script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// inPod runs a command of iproute2 in a pod's network namespace.
func inPod(t *testing.T, e world.Endpoint, script string) {
	t.Helper()
	if out, err := exec.Command("nsenter", "--net="+e.Netns, "sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// answers waits until address answers e.
func answers(t *testing.T, e world.Endpoint, address netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, network := range []string{"icmp", "udp", "tcp"} {
		p := probe.Probe{Netns: e.Netns, Network: network, Address: probe.Address(address, kubelet.DefaultPort)}
		if _, err := p.Until(ctx); err != nil {
			t.Errorf("%s: %s: %v", e.Name, p, err)
		}
	}
}

// silent checks that address does not answer e.
func silent(t *testing.T, e world.Endpoint, address netip.Addr, why string) {
	t.Helper()
	for _, network := range []string{"icmp", "udp"} {
		p := probe.Probe{Netns: e.Netns, Network: network, Address: probe.Address(address, kubelet.DefaultPort)}
		ctx, cancel := context.WithTimeout(t.Context(), limit.Of(10*time.Second))
		if err := p.Silence(ctx, 3); err != nil {
			t.Errorf("%s: %s: %s: %v", why, e.Name, p, err)
		}
		cancel()
	}
}

// try makes attempts and records the results. All must succeed.
func try(t *testing.T, attempts []world.Attempt) {
	t.Helper()
	if err := cluster.Try(t.Context(), attempts); err != nil {
		t.Fatal(err)
	}
	for _, attempt := range attempts {
		if attempt.Err != nil {
			t.Errorf("%v: %v", attempt, attempt.Err)
		}
	}
}

func TestEveryoneReachesEveryone(t *testing.T) {
	var all []world.Endpoint
	for _, e := range pods(t, map[string]string{"a": "master", "b": "minion1", "c": "minion1", "d": "minion2"}) {
		all = append(all, e)
	}
	try(t, inside(all, surround(t)))
}

// AC-68: a pod gets no answer with a forged source MAC or address, and gets one with
// its own again.
func TestAPodCannotImpersonate(t *testing.T) {
	p := pods(t, map[string]string{"thief": "minion1", "victim": "minion1", "server": "minion2"})
	thief, victim, server := p["thief"], p["victim"], p["server"]
	for _, address := range server.Addresses {
		answers(t, thief, address)
	}
	for i, own := range thief.Addresses {
		foreign := victim.Addresses[i]
		for _, tt := range []struct {
			why     string
			address netip.Addr
		}{{"the victim's address", foreign}, {"an address of nobody", nobody(foreign)}} {
			inPod(t, thief, fmt.Sprintf("ip addr del %s/%d dev eth0; ip addr add %s/%d dev eth0 nodad; %s",
				own, bits(own), tt.address, bits(own), gateway(own)))
			silent(t, thief, server.Addresses[i], tt.why)
			inPod(t, thief, fmt.Sprintf("ip addr del %s/%d dev eth0; ip addr add %s/%d dev eth0 nodad; %s",
				tt.address, bits(own), own, bits(own), gateway(own)))
			answers(t, thief, server.Addresses[i])
		}
	}
	mac := strings.TrimSpace(output(t, thief, "cat /sys/class/net/eth0/address"))
	inPod(t, thief, "ip link set eth0 address 0a:58:0a:80:01:fe")
	for _, address := range server.Addresses {
		silent(t, thief, address, "a MAC of nobody")
	}
	inPod(t, thief, "ip link set eth0 address "+mac)
	for i, address := range server.Addresses {
		inPod(t, thief, gateway(thief.Addresses[i]))
		answers(t, thief, address)
		answers(t, victim, address)
	}
}

// output runs a command with the network and the /sys of a pod.
func output(t *testing.T, e world.Endpoint, script string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+e.Netns, "unshare", "--mount", "sh", "-ec", "mount -t sysfs sysfs /sys; "+script).Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return string(out)
}

func bits(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

// gateway returns the command for restoring the default route: the kernel removes
// it with the address.
func gateway(a netip.Addr) string {
	p, err := a.Prefix(bits(a))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("ip route replace default via %s", p.Addr().Next())
}

// nobody returns an unused address of the same subnet.
func nobody(a netip.Addr) netip.Addr {
	b := a.AsSlice()
	b[len(b)-1] = 250
	out, _ := netip.AddrFromSlice(b)
	return out
}

func TestPodsSurviveARestartOfOpenVSwitch(t *testing.T) {
	p := pods(t, map[string]string{"a": "minion1", "b": "minion2"})
	if err := cluster.Node("minion1").RestartOVS(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range p["a"].Addresses {
		answers(t, p["a"], p["b"].Addresses[i])
		answers(t, p["b"], p["a"].Addresses[i])
	}
}

func TestPodsSurviveAnEmptiedNorthbound(t *testing.T) {
	p := pods(t, map[string]string{"a": "minion1", "b": "minion2"})
	answers(t, p["a"], p["b"].Addresses[0])
	cluster.Central.StopNB()
	if err := cluster.Central.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	consistent(t)
	for i := range p["a"].Addresses {
		answers(t, p["a"], p["b"].Addresses[i])
		answers(t, p["b"], p["a"].Addresses[i])
	}
}

// Without the Southbound database pods keep their connectivity, and a new pod
// waits. ovn-northd and the hosts fill an empty database.
func TestPodsSurviveAnEmptiedSouthbound(t *testing.T) {
	where := map[string]string{"a": "minion1", "b": "minion2"}
	p := pods(t, where)
	answers(t, p["a"], p["b"].Addresses[0])
	missed := func() string {
		return sh(t, cluster.Master(), "grep -c 'is not in the Southbound database,' "+logOf(watcher())+" || true")
	}
	before := missed()
	cluster.Central.StopSB()
	for i := range p["a"].Addresses {
		answers(t, p["a"], p["b"].Addresses[i])
	}
	if _, err := cluster.Kube.CreatePod(t.Context(), "default", "late", "minion2", nil); err != nil {
		t.Fatal(err)
	}
	where["late"] = "minion2" // removed with them
	if err := cluster.Central.StartEmptySB(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	late, err := cluster.AwaitPod(ctx, "default", "late")
	if err != nil {
		t.Fatal(err)
	}
	consistent(t)
	if now := missed(); now != before {
		t.Errorf("hosts that come back are reported as missing: %s lines, %s before", now, before)
	}
	for i := range p["a"].Addresses {
		answers(t, p["a"], late.Addresses[i])
		answers(t, late, p["b"].Addresses[i])
		answers(t, p["b"], p["a"].Addresses[i])
	}
}

func TestAStatefulPodReturnsUnderItsName(t *testing.T) {
	where := map[string]string{"web-0": "minion1", "other": "minion2"}
	p := pods(t, where)
	for _, node := range []string{"minion1", "minion2"} { // the same node, then another one
		now := int64(0)
		if err := cluster.Kube.Client().CoreV1().Pods("default").Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Kube.CreatePod(t.Context(), "default", "web-0", node, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		e, err := cluster.AwaitPod(ctx, "default", "web-0")
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for i := range e.Addresses {
			answers(t, p["other"], e.Addresses[i])
		}
	}
}

func TestABadPodIsToldAndDoesNotDisturb(t *testing.T) {
	require.Nothing(t, require.Cluster, world.Missing())
	_, err := cluster.Kube.CreatePod(t.Context(), "default", "bad", "minion1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "much", "ovn": "nonsense"}
	})
	if err != nil {
		t.Fatal(err)
	}
	p := pods(t, map[string]string{"good": "minion1", "other": "minion2"})
	answers(t, p["good"], p["other"].Addresses[0])
	if bad, err := cluster.Kube.Client().CoreV1().Pods("default").Get(t.Context(), "bad", metav1.GetOptions{}); err != nil || bad.Status.Phase == corev1.PodRunning {
		t.Errorf("a pod with a bad annotation runs: %v %v", bad.Status.Phase, err)
	}
	var log string
	eventually(t, "the plugin's log names the bad value", func() bool {
		log = sh(t, cluster.Node("minion1"), "cat /var/log/openvswitch/"+plugin()+".log")
		return strings.Contains(log, `kubernetes.io/ingress-bandwidth`) && strings.Contains(log, `much`)
	}, &log)
	remove(t, map[string]string{"bad": "", "good": "", "other": ""})
}

// No log contains a token of the API server.
func TestTokensAreNotLogged(t *testing.T) {
	pods(t, map[string]string{"a": "master", "b": "minion1", "c": "minion2"})
	for _, n := range cluster.Nodes {
		token := strings.Trim(sh(t, n, "cat /etc/openvswitch/ovnkube.token 2>/dev/null || ovs-vsctl get Open_vSwitch . external_ids:k8s-api-token"), "\"\n")
		if len(token) < 16 {
			t.Fatalf("token %q of %s", token, n.Name)
		}
		logs := sh(t, n, "ls /var/log/openvswitch")
		for name := range strings.FieldsSeq(logs) {
			if !strings.HasPrefix(name, "ovn-k8s") && !strings.HasPrefix(name, "ovnkube") {
				continue
			}
			text, err := os.ReadFile(n.Path(filepath.Join("/var/log/openvswitch", name)))
			if err != nil {
				t.Fatal(err)
			}
			if len(text) == 0 || strings.Contains(string(text), token) {
				t.Errorf("%s on %s is empty or has the token", name, n.Name)
			}
		}
	}
}
