package kubelets

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/test/poll"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

//go:embed testdata/workloads.yaml
var workloads []byte

//go:embed testdata/static.yaml
var staticPod []byte

// connectJob is a format; its arguments are a name, the image and the server's address.
const connectJob = `{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": %q},
"spec": {"completions": 10, "parallelism": 5, "backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never",
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

// get sends an HTTP request to a pod from a network namespace.
func get(ctx context.Context, netns string, address netip.AddrPort, path string) (string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = probe.In(netns, func() error {
				conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v%s", address, path), nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var b strings.Builder
	if err := response.Write(&b); err != nil {
		return "", err
	}
	_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
	if response.StatusCode != http.StatusOK {
		return body, errors.New(response.Status)
	}
	return body, nil
}

// addresses returns the addresses of a pod.
func addresses(p corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range p.Status.PodIPs {
		all = append(all, netip.MustParseAddr(ip.IP))
	}
	return all
}

// reach checks that pod from reaches pod to, by both protocols and families.
func (c *cluster) reach(t *testing.T, from, to corev1.Pod) {
	t.Helper()
	for _, address := range addresses(to) {
		for protocol, port := range map[string]int{"http": httpPort, "udp": udpPort} {
			query := url.Values{"request": {"hostname"}, "protocol": {protocol}, "host": {address.String()}, "port": {fmt.Sprint(port)}, "tries": {"1"}}
			c.await(t, func() error {
				// the request to /dial comes from the pod's own node
				answer, err := get(c.ctx(t), c.Node(from.Spec.NodeName).Netns(), netip.AddrPortFrom(addresses(from)[0], httpPort), "/dial?"+query.Encode())
				if err == nil && !strings.Contains(answer, fmt.Sprintf(`"responses":[%q]`, to.Name)) {
					err = errors.New(answer)
				}
				if err != nil {
					return fmt.Errorf("%s on %s asks %s on %s (%v) by %s: %w", from.Name, from.Spec.NodeName, to.Name, to.Spec.NodeName, address, protocol, err)
				}
				return nil
			})
		}
	}
}

// reachFromNode checks that a node reaches a pod, by both protocols and families.
func (c *cluster) reachFromNode(t *testing.T, node string, to corev1.Pod) {
	t.Helper()
	netns := c.Node(node).Netns()
	for _, address := range addresses(to) {
		c.await(t, func() error {
			answer, err := get(c.ctx(t), netns, netip.AddrPortFrom(address, httpPort), "/hostname")
			if err == nil && answer != to.Name {
				err = fmt.Errorf("answer %q", answer)
			}
			return wrap(err, "%s asks %s on %s (%v) by http", node, to.Name, to.Spec.NodeName, address)
		})
		c.await(t, func() error {
			answer, err := askUDP(netns, netip.AddrPortFrom(address, udpPort))
			if err == nil && answer != to.Name {
				err = fmt.Errorf("answer %q", answer)
			}
			return wrap(err, "%s asks %s on %s (%v) by udp", node, to.Name, to.Spec.NodeName, address)
		})
	}
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

func askUDP(netns string, address netip.AddrPort) (answer string, err error) {
	var conn net.Conn
	if err := probe.In(netns, func() (err error) { conn, err = net.Dial("udp", address.String()); return err }); err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("hostname\n")); err != nil {
		return "", err
	}
	answers := make([]byte, 1500)
	n, err := conn.Read(answers)
	return strings.TrimSpace(string(answers[:n])), err
}

// testDeployment also measures the start-up time of pods.
func testDeployment(t *testing.T, c *cluster) {
	watch, err := c.kube.Client().CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	c.kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", webReplicas))
	created, took := map[types.UID]time.Time{}, map[types.UID]time.Duration{}
	deadline := time.After(patience)
	for len(took) < webReplicas {
		select {
		case event := <-watch.ResultChan():
			p, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("%+v", event)
			}
			if created[p.UID].IsZero() {
				created[p.UID] = time.Now()
			}
			if _, known := took[p.UID]; !known && ready(*p) {
				took[p.UID] = time.Since(created[p.UID])
			}
		case <-deadline:
			t.Fatalf("%d of %d pods are ready:\n%s", len(took), webReplicas, c.kubectl(t, "describe", "pods"))
		}
	}
	var all []time.Duration
	for _, d := range took {
		all = append(all, d.Round(time.Millisecond))
	}
	slices.Sort(all)
	t.Logf("from create to Ready: median %v, last %v", all[len(all)/2], all[len(all)-1])
	for _, n := range c.Nodes {
		log, err := os.ReadFile(n.Path("/var/log/openvswitch/ovn-k8s-cni-overlay.log"))
		if err != nil {
			t.Fatal(err)
		}
		lines := regexp.MustCompile(`ADD took.*`).FindAllString(string(log), -1)
		t.Logf("%s: stages of the last ADDs:\n%s", n.Name, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	pods := c.awaitPods(t, "app=web", webReplicas)
	seen := map[netip.Addr]string{}
	for _, p := range pods {
		for _, a := range addresses(p) {
			if seen[a] != "" {
				t.Errorf("%s and %s both have %v", seen[a], p.Name, a)
			}
			seen[a] = p.Name
		}
		if len(addresses(p)) != 2 {
			t.Errorf("%s has %v", p.Name, addresses(p))
		}
	}
	c.check(t)
}

// testConnectivity covers the conformance tests "Granular Checks: Pods".
func testConnectivity(t *testing.T, c *cluster) {
	pods := c.awaitPods(t, "app=web", webReplicas)
	for _, from := range c.Nodes {
		for _, to := range c.Nodes {
			a := onNode(t, pods, from.Name)
			slices.Reverse(pods) // another one on the same node
			b := onNode(t, pods, to.Name)
			c.reach(t, a, b)
			c.reachFromNode(t, from.Name, b)
		}
	}
	for _, p := range pods {
		c.reach(t, pods[0], p)
	}
}

func testKubectl(t *testing.T, c *cluster) {
	pods := c.awaitPods(t, "app=web", webReplicas)
	for _, n := range c.Nodes {
		p := onNode(t, pods, n.Name)
		if got := c.kubectl(t, "exec", p.Name, "--", "cat", "/etc/hostname"); got != p.Name {
			t.Errorf("exec on %s: %q", n.Name, got)
		}
		if got := c.kubectl(t, "exec", p.Name, "--", "cat", "/etc/hosts"); !strings.Contains(got, p.Status.PodIP+"\t"+p.Name) {
			t.Errorf("/etc/hosts on %s: %q", n.Name, got)
		}
		if got := c.kubectl(t, "logs", p.Name); !strings.Contains(got, "Started HTTP server") {
			t.Errorf("logs on %s: %q", n.Name, got)
		}
		testPortForward(t, c, p)
	}
}

func testPortForward(t *testing.T, c *cluster, p corev1.Pod) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Env = c.KubectlCommand(t.Context()).Env
		return cmd
	}
	forward, err := reaper.Start(command, "kubectl", "port-forward", "pod/"+p.Name, fmt.Sprintf("%d:%d", port, httpPort))
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Stop()
	address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	c.await(t, func() error {
		answer, err := get(c.ctx(t), "", address, "/hostname")
		if err == nil && answer != p.Name {
			err = fmt.Errorf("port-forward: answer %q", answer)
		}
		return errors.Join(err, forward.Err())
	})
}

func freePort() (uint16, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port), nil
}

// testLiveness runs a container failing its probe after ten seconds. It is
// restarted in the same sandbox.
func testLiveness(t *testing.T, c *cluster) {
	c.kubectl(t, "run", "liveness", "--image="+AgnhostImage, `--overrides={"spec":{"containers":[{"name":"liveness","image":"`+AgnhostImage+`",
		"args":["liveness"],"livenessProbe":{"httpGet":{"path":"/healthz","port":8080},"periodSeconds":1,"failureThreshold":1}}],"terminationGracePeriodSeconds":0}}`)
	defer c.kubectl(t, "delete", "pod", "liveness")
	address := ""
	_, err := c.kube.AwaitPod(c.ctx(t), "default", "liveness", func(p *corev1.Pod) bool {
		if address == "" {
			address = p.Status.PodIP
		}
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount > 0 && s[0].State.Running != nil && p.Status.PodIP == address
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.kubectl(t, "get", "pod", "liveness", "-o", "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}"); got == "" {
		t.Error("the container was not killed")
	}
}

// testStatefulSet deletes a pod; its controller creates a new one with the same name.
func testStatefulSet(t *testing.T, c *cluster) {
	pods := c.awaitPods(t, "app=web", webReplicas)
	c.kubectl(t, "scale", "statefulset/db", "--replicas=2")
	defer func() {
		c.kubectl(t, "scale", "statefulset/db", "--replicas=0")
		c.awaitPods(t, "app=db", 0)
	}()
	c.awaitPods(t, "app=db", 2)
	for range 3 {
		old := c.awaitPods(t, "app=db", 2)
		c.kubectl(t, "delete", "pod", "db-0", "--wait=false")
		start := time.Now()
		c.await(t, func() error {
			p, err := c.kube.Client().CoreV1().Pods("default").Get(c.ctx(t), "db-0", metav1.GetOptions{})
			if err == nil && (p.UID == old[0].UID || !ready(*p)) {
				err = errors.New("db-0 is not ready again")
			}
			return err
		})
		t.Logf("db-0 was ready again after %v", time.Since(start).Round(time.Millisecond))
		for _, p := range c.awaitPods(t, "app=db", 2) {
			c.reach(t, pods[0], p)
			c.reach(t, p, pods[0])
		}
	}
	c.check(t)
}

// testForcedDeletion deletes pods from the API server before their kubelets know.
// Controllers immediately create new ones with the same names.
func testForcedDeletion(t *testing.T, c *cluster) {
	pods := c.awaitPods(t, "app=web", webReplicas)
	c.kubectl(t, "scale", "statefulset/db", "--replicas=2")
	defer func() {
		c.kubectl(t, "scale", "statefulset/db", "--replicas=0")
		c.awaitPods(t, "app=db", 0)
	}()
	for range 3 {
		old := c.awaitPods(t, "app=db", 2)
		c.kubectl(t, "delete", "pod", "db-0", "db-1", "--force", "--grace-period=0", "--wait=false")
		c.await(t, func() error {
			for _, o := range old {
				p, err := c.kube.Client().CoreV1().Pods("default").Get(c.ctx(t), o.Name, metav1.GetOptions{})
				if err == nil && (p.UID == o.UID || !ready(*p)) {
					err = fmt.Errorf("%s is not ready again", o.Name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		for _, p := range c.awaitPods(t, "app=db", 2) {
			c.reach(t, pods[0], p)
			c.reach(t, p, pods[0])
		}
	}
	c.kubectl(t, append([]string{"delete", "pod", "--force", "--grace-period=0"}, names(pods[:4])...)...)
	c.awaitPods(t, "app=web", webReplicas)
	c.check(t)
}

func names(pods []corev1.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return all
}

// testJob lets pods complete. The objects remain, without a network.
func testJob(t *testing.T, c *cluster) {
	c.clear(t)
	c.kubectl(t, "create", "job", "work", "--image="+AgnhostImage, "--", "/agnhost", "--version")
	defer c.kubectl(t, "delete", "job", "work")
	c.kubectl(t, "wait", "--for=condition=Complete", "--timeout=60s", "job/work")
	c.leaves(t, c.empty)
	c.check(t)
}

// testFirstPacket runs pods sending one datagram to pods on both nodes right after
// their start. Each must get an answer.
func testFirstPacket(t *testing.T, c *cluster) {
	c.clear(t)
	pods := c.scale(t, 4)
	for _, n := range c.Nodes {
		for i, address := range addresses(onNode(t, pods, n.Name)) {
			job := fmt.Sprintf(connectJob, fmt.Sprintf("connect-%s-%d", n.Name, i), AgnhostImage, netip.AddrPortFrom(address, udpPort))
			if err := c.kube.Apply(c.ctx(t), []byte(job)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.await(t, func() error {
		ended := c.kubectl(t, "get", "jobs", "-o", "jsonpath={.items[*].status.conditions[?(@.status=='True')].type}")
		if strings.Contains(ended, "Failed") || strings.Count(ended+" ", "Complete ") == 2*len(c.Nodes) {
			return nil
		}
		return fmt.Errorf("of the jobs are %s", ended)
	})
	if failed := c.kubectl(t, "get", "pods", "--field-selector=status.phase=Failed", "-o", "name"); failed != "" {
		t.Errorf("a packet was lost: %s; logs: %s", failed, c.kubectl(t, append([]string{"logs"}, strings.Fields(failed)[0])...))
	}
	c.kubectl(t, "delete", "jobs", "--all")
	c.clear(t)
}

// testBandwidth creates pods with bandwidth limits. Their queues must be deleted with them.
func testBandwidth(t *testing.T, c *cluster) {
	c.clear(t)
	c.kubectl(t, "run", "limited", "--image="+AgnhostImage,
		"--annotations=kubernetes.io/ingress-bandwidth=10M", "--annotations=kubernetes.io/egress-bandwidth=10M", "--", "netexec")
	p, err := c.kube.AwaitPod(c.ctx(t), "default", "limited", func(p *corev1.Pod) bool { return ready(*p) })
	if err != nil {
		t.Fatal(err)
	}
	c.reach(t, *p, *p)
	c.reachFromNode(t, "master", *p)
	c.kubectl(t, "delete", "pod", "limited", "--grace-period=1")
	c.leaves(t, c.empty)
}

// testHostNetwork creates a pod in the host's network.
func testHostNetwork(t *testing.T, c *cluster) {
	c.clear(t)
	c.kubectl(t, "run", "host", "--image="+AgnhostImage, `--overrides={"spec":{"hostNetwork":true}}`, "--", "netexec")
	p, err := c.kube.AwaitPod(c.ctx(t), "default", "host", func(p *corev1.Pod) bool { return ready(*p) })
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Node(p.Spec.NodeName); p.Status.PodIP != n.IPv4().String() || p.Annotations["ovn"] != "" {
		t.Errorf("the pod has address %s, annotations %v", p.Status.PodIP, p.Annotations)
	}
	c.check(t)
	c.kubectl(t, "delete", "pod", "host", "--grace-period=1")
	c.leaves(t, c.empty)
}

// testStaticPod runs a static pod. Its mirror pod in the API server has another
// UID.
func testStaticPod(t *testing.T, c *cluster) {
	r := c.Runtime("minion1")
	file := r.Path(filepath.Join(manifests, "static.yaml"))
	if err := os.WriteFile(file, staticPod, 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	p, err := c.kube.AwaitPod(c.ctx(t), "default", "static-minion1", func(p *corev1.Pod) bool { return ready(*p) })
	if err != nil {
		t.Fatal(err)
	}
	c.reach(t, *p, *p)
	c.reachFromNode(t, "master", *p)
	c.check(t)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c.leaves(t, c.empty)
}

// testSandboxKilled kills the sandbox container of a pod. The kubelet creates a new
// sandbox for the same pod.
func testSandboxKilled(t *testing.T, c *cluster) {
	c.clear(t)
	pods := c.scale(t, 4)
	victim := onNode(t, pods, "minion1")
	r := c.Runtime("minion1")
	id, _, err := r.Run(c.ctx(t), "ctr", "--namespace=k8s.io", "containers", "list", "-q",
		fmt.Sprintf(`labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.uid"==%s`, victim.UID))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Run(c.ctx(t), "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", strings.TrimSpace(id)); err != nil {
		t.Fatal(err)
	}
	renewed, err := c.kube.AwaitPod(c.ctx(t), "default", victim.Name, func(p *corev1.Pod) bool {
		return ready(*p) && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(addresses(*renewed), addresses(victim)) {
		t.Errorf("%s had %v and has %v", victim.Name, addresses(victim), addresses(*renewed))
	}
	c.connected(t, c.awaitPods(t, "app=web", 4))
	c.check(t)
	c.clear(t)
}

// testControllerStopped creates pods while ovn-controller is down. Their Events
// name the cause, and they start when it is back.
func testControllerStopped(t *testing.T, c *cluster) {
	c.clear(t)
	r, ctx := c.Runtime("minion1"), c.ctx(t)
	if err := errors.Join(r.VSCtl(ctx, "set", "Open_vSwitch", ".", "external_ids:ovn-k8s-cni-timeout=3s"), r.StopController(ctx)); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "scale", "deployment/web", "--replicas=4")
	c.await(t, func() error {
		events, err := c.Kubectl(ctx, "get", "events", "--field-selector=reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(events, "ovn-controller") {
			err = fmt.Errorf("events are %q", events)
		}
		return err
	})
	if err := errors.Join(r.StartController(ctx, c.Central.SBTCP), r.VSCtl(ctx, "remove", "Open_vSwitch", ".", "external_ids", "ovn-k8s-cni-timeout")); err != nil {
		t.Fatal(err)
	}
	c.connected(t, c.awaitPods(t, "app=web", 4))
	t.Log(c.kubectl(t, "get", "events", "--field-selector=reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[0].message}"))
	c.clear(t)
}

func testScaling(t *testing.T, c *cluster) {
	c.clear(t)
	var lap []time.Duration
	for range 10 {
		start := time.Now()
		c.scale(t, webReplicas)
		lap = append(lap, time.Since(start).Round(10*time.Millisecond))
		c.clear(t)
	}
	t.Logf("from scale to all %d Ready: %v", webReplicas, lap)
	c.scale(t, webReplicas)
	c.check(t)
}

func testWatcherKilled(t *testing.T, c *cluster) {
	if err := c.KillWatcher(c.ctx(t)); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "scale", "deployment/web", "--replicas=5")
	c.kubectl(t, "scale", "statefulset/db", "--replicas=2")
	if err := c.StartWatcher(c.ctx(t)); err != nil {
		t.Fatal(err)
	}
	pods := c.awaitPods(t, "app=web", 5)
	for _, p := range c.awaitPods(t, "app=db", 2) {
		c.reach(t, p, pods[0])
	}
	c.kubectl(t, "scale", "statefulset/db", "--replicas=0")
	c.awaitPods(t, "app=db", 0)
	c.check(t)
}

// connected checks that pods on both nodes reach each other, and that nodes reach pods.
func (c *cluster) connected(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	one, other := onNode(t, pods, "master"), onNode(t, pods, "minion1")
	for _, p := range pods {
		c.reach(t, one, p)
		c.reach(t, other, p)
		c.reach(t, p, one)
	}
	for _, n := range c.Nodes {
		c.reachFromNode(t, n.Name, one)
		c.reachFromNode(t, n.Name, other)
	}
}

// restarts returns the addresses and the restart count of each pod.
func restarts(pods []corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, p := range pods {
		all[p.Name] = fmt.Sprint(p.Status.PodIPs, p.Status.ContainerStatuses[0].RestartCount)
	}
	return all
}

// testServicesRestarted kills all daemons of a node, but not its pods.
func testServicesRestarted(t *testing.T, c *cluster) {
	c.clear(t)
	pods := c.scale(t, 6)
	before := c.traces(t)
	r, ctx := c.Runtime("minion1"), c.ctx(t)
	r.Stop()
	if err := errors.Join(r.StopController(ctx), r.StopOVS(ctx)); err != nil {
		t.Fatal(err)
	}
	c.up(t, r)
	c.connected(t, pods)
	if diff := cmp.Diff(restarts(pods), restarts(c.awaitPods(t, "app=web", 6))); diff != "" {
		t.Errorf("pods have changed (-before +after)\n%s", diff)
	}
	c.leaves(t, before)
	c.connected(t, c.scale(t, 12))
	c.check(t)
}

// up starts the services of a node in systemd's order.
func (c *cluster) up(t *testing.T, r *Runtime) {
	t.Helper()
	ctx := c.ctx(t)
	if err := errors.Join(c.network(ctx, r), r.StartController(ctx, c.Central.SBTCP), c.StartHelper(ctx, r.Node), r.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node", r.Name)
}

// network starts a node's Open vSwitch, and restores its management port like
// ovn-k8s-node.service of the documentation.
func (c *cluster) network(ctx context.Context, r *Runtime) error {
	if err := r.StartOVS(ctx); err != nil {
		return err
	}
	return c.Do(ctx, r.Node, "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet=10.128.0.0/14,fd01::/48",
		"--minion-switch-subnet="+r.Subnets, "--node-name="+r.Name)
}

// testRebooted reboots a node. While it is down, one of its pods is deleted.
func testRebooted(t *testing.T, c *cluster) {
	pods := c.scale(t, 6)
	r, ctx := c.Runtime("minion1"), c.ctx(t)
	if err := r.reboot(ctx); err != nil {
		t.Fatal(err)
	}
	lost := onNode(t, pods, "minion1")
	c.kubectl(t, "delete", "pod", lost.Name, "--force", "--grace-period=0")
	c.up(t, r)
	after := c.awaitRestart(t, pods)
	c.connected(t, after)
	c.check(t)
	for _, p := range after {
		old := slices.IndexFunc(pods, func(o corev1.Pod) bool { return o.UID == p.UID })
		if old >= 0 && !slices.Equal(addresses(p), addresses(pods[old])) {
			t.Errorf("%s had %v and has %v", p.Name, addresses(pods[old]), addresses(p))
		}
	}
}

// awaitRestart waits until there are as many pods as before the reboot of minion1,
// all ready, and all old pods on minion1 have been restarted (an old status may
// still say ready).
func (c *cluster) awaitRestart(t *testing.T, before []corev1.Pod) (after []corev1.Pod) {
	t.Helper()
	c.await(t, func() error {
		after = c.awaitPods(t, "app=web", len(before))
		for _, p := range after {
			old := slices.IndexFunc(before, func(o corev1.Pod) bool { return o.UID == p.UID })
			if old >= 0 && p.Spec.NodeName == "minion1" && p.Status.ContainerStatuses[0].RestartCount == before[old].Status.ContainerStatuses[0].RestartCount {
				return fmt.Errorf("%s was not restarted", p.Name)
			}
		}
		return nil
	})
	return after
}

// testNodeDeleted deletes a Node; its kubelet registers it again.
func testNodeDeleted(t *testing.T, c *cluster) {
	c.clear(t)
	pods := c.scale(t, 6)
	r := c.Runtime("minion1")
	r.Stop()
	c.kubectl(t, "delete", "node", "minion1")
	for _, p := range pods {
		if p.Spec.NodeName == "minion1" {
			c.kubectl(t, "delete", "pod", p.Name, "--force", "--grace-period=0")
		}
	}
	for _, p := range c.awaitPods(t, "app=web", 6) {
		if p.Spec.NodeName != "master" {
			t.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
		}
	}
	c.check(t)
	if err := r.Start(c.ctx(t)); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=create", "--timeout=60s", "node/minion1")
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node/minion1")
	c.connected(t, c.scale(t, 12))
	c.check(t)
	c.clear(t)
}
