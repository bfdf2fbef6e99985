package kubelet_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

// plugin is a CNI plugin. It adds an address to the loopback interface of every
// sandbox and logs its calls.
//
//go:embed testdata/plugin.sh
var plugin string

const config = `{"cniVersion": "1.1.0", "name": "test", "plugins": [{"type": "plugin"}]}`

// install writes the plugin and then its configuration into a host.
func install(t *testing.T, h *host.Host) {
	t.Helper()
	if err := os.WriteFile(h.Path("/opt/cni/bin/plugin"), []byte(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Path("/etc/cni/net.d/10-test.conflist"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
}

func calls(t *testing.T, h *host.Host) string {
	t.Helper()
	text, err := os.ReadFile(h.Path("/run/plugin.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func running(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func TestPodLifecycle(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cluster, err := kubetest.Start(ctx, kubetest.Options{Log: func(s string) { t.Log(s) }})
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	check("starting a control plane", err)
	defer cluster.Close()
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	fabric, err := host.NewFabric()
	check("making a fabric", err)
	defer fabric.Close()
	h, err := host.New(host.Options{Name: "node1", Fabric: fabric})
	check("making a host", err)
	defer h.Close()

	k := kubelet.New(kubelet.Options{Host: h, Client: cluster.Client(), Log: t.Logf})
	defer k.Close()
	check("starting the kubelet", k.Start(ctx))
	nodes := cluster.Client().CoreV1().Nodes()
	node, err := nodes.Get(ctx, "node1", metav1.GetOptions{})
	check("getting the node", err)
	if c := node.Status.Conditions[0]; c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "no CNI configuration") {
		t.Errorf("node without a network: %+v", c)
	}
	install(t, h)

	// the scheduler picks the node as soon as it is ready
	_, err = cluster.CreatePod(ctx, "default", "a", "", nil)
	check("creating a pod", err)
	pod, err := cluster.AwaitPod(ctx, "default", "a", running)
	check("running a pod", err)
	if got := fmt.Sprint(pod.Status.PodIPs); got != "[{127.1.0.1} {fd00::1}]" {
		t.Errorf("addresses in the status: %s", got)
	}
	sandbox := k.Sandbox("default", "a")
	if got := fmt.Sprint(sandbox.Addresses); got != "[127.1.0.1 fd00::1]" {
		t.Errorf("addresses of the sandbox: %s", got)
	}
	if want := fmt.Sprintf("ADD %s eth0 IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=%[1]s;K8S_POD_UID=%s\n",
		sandbox.ID, pod.UID); !strings.Contains(calls(t, h), want) {
		t.Errorf("calls:\n%s\nwant\n%s", calls(t, h), want)
	}

	_, err = cluster.CreatePod(ctx, "default", "b", "node1", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	check("creating a hostNetwork pod", err)
	pod, err = cluster.AwaitPod(ctx, "default", "b", running)
	check("running a hostNetwork pod", err)
	if pod.Status.PodIP != h.IPv4().String() {
		t.Errorf("address of a hostNetwork pod: %s", pod.Status.PodIP)
	}

	// a restart keeps sandboxes and passes them to the plugins (GC)
	k.Stop()
	check("starting the kubelet again", k.Start(ctx))
	if got := k.Sandbox("default", "a"); got != sandbox {
		t.Error("the restart made another sandbox")
	}
	if want := "GC [" + sandbox.ID; !strings.Contains(calls(t, h), want) {
		t.Errorf("calls:\n%s\nwant\n%s", calls(t, h), want)
	}

	// the kubelet completes the deletion
	check("deleting a pod", cluster.Client().CoreV1().Pods("default").Delete(ctx, "a", metav1.DeleteOptions{}))
	for {
		_, err := cluster.Client().CoreV1().Pods("default").Get(ctx, "a", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			break
		}
		check("waiting for the deletion", err)
	}
	deadline := time.Now().Add(time.Minute)
	for k.Sandbox("default", "a") != nil {
		if time.Now().After(deadline) {
			t.Fatal("the sandbox lives")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(calls(t, h), "DEL "+sandbox.ID) {
		t.Errorf("calls:\n%s\nwant a DEL", calls(t, h))
	}
	if left, _ := os.ReadDir(h.Path("/run/netns")); len(left) != 0 {
		t.Errorf("namespaces left: %v", left)
	}
}

func TestFailedSetUpIsTakenBackAndRepeated(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cluster, err := kubetest.Start(ctx, kubetest.Options{Without: []string{"kube-controller-manager", "kube-scheduler"}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	h, err := host.New(host.Options{Name: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	install(t, h)
	if err := os.WriteFile(h.Path("/run/fail"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	var failures []string
	k := kubelet.New(kubelet.Options{Host: h, Client: cluster.Client(), Log: func(format string, args ...any) {
		failures = append(failures, fmt.Sprintf(format, args...))
	}})
	defer k.Close()
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.CreatePod(ctx, "default", "a", "node1", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AwaitPod(ctx, "default", "a", running); err != nil {
		t.Fatal(err)
	}
	k.Stop()
	if len(failures) != 2 || !strings.Contains(failures[0], "out of luck; as planned") {
		t.Errorf("failures: %q", failures)
	}
	log := calls(t, h)
	if add, del := strings.Count(log, "ADD "), strings.Count(log, "DEL "); add != 3 || del != 2 {
		t.Errorf("%d ADD and %d DEL, want 3 and 2:\n%s", add, del, log)
	}
	if left, _ := os.ReadDir(h.Path("/run/netns")); len(left) != 1 {
		t.Errorf("namespaces: %v, want one", left)
	}
}
