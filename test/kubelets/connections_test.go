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
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/reaper"
)

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

// testFirstPacket runs pods sending one datagram to pods on both nodes right after
// their start. Each must get an answer; with the userspace datapath, nine of ten:
// each new pod is a new interface, so Open vSwitch reads the host's routes again
// (route_table_reset in its route-table.c), and drops what it looks up meanwhile.
func testFirstPacket(t *testing.T, c *cluster) {
	c.clear(t)
	pods := c.scale(t, 4)
	c.connected(t, pods) // the first packet of a tunnel may be lost during ARP
	mayFail := int32(0)
	if host.Datapath() == host.Userspace {
		mayFail = 1
	}
	for _, n := range c.Nodes {
		for i, address := range addresses(onNode(t, pods, n.Name)) {
			job := fmt.Sprintf(connectJob, fmt.Sprintf("connect-%s-%d", n.Name, i), mayFail, AgnhostImage, netip.AddrPortFrom(address, udpPort))
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
		t.Logf("without an answer: %s; logs of the first: %s", failed, c.kubectl(t, append([]string{"logs"}, strings.Fields(failed)[0])...))
	}
	jobs, err := c.kube.Client().BatchV1().Jobs("default").List(c.ctx(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs.Items {
		if j.Status.Failed > mayFail {
			t.Errorf("%s: of %d packets, %d had no answer", j.Name, *j.Spec.Completions, j.Status.Failed)
		}
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
