package e2e

import (
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// kubectl runs the real kubectl as the cluster's administrator.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("kubectl", append([]string{"--kubeconfig", cluster.Kube.Kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// The first steps of a user: kubectl create and kubectl expose.
func TestKubectlExpose(t *testing.T) {
	missing := world.Missing()
	if _, err := exec.LookPath("kubectl"); err != nil {
		missing = "kubectl"
	}
	require.Nothing(t, require.Cluster, missing)
	client := pods(t, map[string]string{"client": "minion2"})["client"]
	t.Cleanup(func() { // before the check of pods that all are gone
		_ = exec.Command("kubectl", "--kubeconfig", cluster.Kube.Kubeconfig, "delete", "--ignore-not-found", "deployment/shop", "service/shop", "service/shop-port").Run()
	})
	port := strconv.Itoa(kubelet.DefaultPort)
	kubectl(t, "create", "deployment", "shop", "--image=none", "--replicas=3", "--port="+port)
	kubectl(t, "expose", "deployment", "shop", "--port=80", "--target-port="+port)
	kubectl(t, "expose", "deployment", "shop", "--name=shop-port", "--type=NodePort", "--port="+port)
	kubectl(t, "rollout", "status", "deployment/shop", "--timeout=120s")

	var backends []world.Endpoint
	for name := range strings.FieldsSeq(kubectl(t, "get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].metadata.name}")) {
		e, err := cluster.AwaitPod(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, e)
	}
	if len(backends) != 3 {
		t.Fatalf("%d replicas", len(backends))
	}
	to := netip.MustParseAddr(kubectl(t, "get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}"))
	nodePort, err := strconv.Atoi(kubectl(t, "get", "service", "shop-port", "-o", "jsonpath={.spec.ports[0].nodePort}"))
	if err != nil {
		t.Fatal(err)
	}
	var attempts []world.Attempt
	for _, from := range append(hosts(), client) {
		attempts = append(attempts, tcpWays(from, to, 80, backends)...)
	}
	outside := cluster.OutsideClient().Endpoint
	for _, n := range cluster.Nodes { // without any gateway
		for _, from := range append(hosts(), client, outside) {
			attempts = append(attempts, tcpWays(from, n.IPv4(), nodePort, backends)...)
		}
	}
	try(t, attempts)
	answer(t, client, netip.AddrPortFrom(to, 80), backends...)
	kubectl(t, "scale", "deployment/shop", "--replicas=0")
	refused(t, client, netip.AddrPortFrom(to, 80))
	var shown string
	eventually(t, "service/show says so", func() bool {
		shown = sh(t, cluster.Master(), "ovs-appctl -t "+watcher()+" "+ofWatcher("service/show")+" default/shop")
		return strings.Contains(shown, "none: refused")
	}, &shown)
}

// tcpWays returns the TCP Attempts to a port, with any client address.
func tcpWays(from world.Endpoint, to netip.Addr, port int, answers []world.Endpoint) []world.Attempt {
	var seen []netip.Addr
	for _, n := range cluster.Nodes {
		seen = slices.Concat(seen, n.Management, nodeAddrs(n.Name))
	}
	return []world.Attempt{{
		Row: from.Name, Column: "shop", From: from, Network: "tcp",
		Address: probe.Address(to, port), Answers: answers, Seen: append(seen, from.Addresses...),
	}}
}
