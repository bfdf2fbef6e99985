package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// report writes status.podIPs like the kubelet.
func (w api) report(name string, ips ...string) {
	w.Helper()
	status := corev1.PodStatus{}
	for _, ip := range ips {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"podIPs": status.PodIPs, "podIP": ips[0]}})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := cluster.Client().CoreV1().Pods("default").Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		w.Fatal(err)
	}
}

// T2, T3: a running pod keeps its addresses through conversions. If its node's subnets changed, or it lacks a
// family, an Event on the pod, pod/show and --check report it.
func TestARunningPodWithOtherAddressesIsTold(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	socket := filepath.Join(w.dir, "ctl")
	p := w.start("--unixctl=" + socket)
	for _, name := range []string{"z", "b", "a"} { // not in the order of names
		w.pod(name, "node1", nil)
		w.report(name, w.annotation(name).IPs[0].Addr().String())
	}
	had := w.port("default_a", "addresses")
	show := func() string {
		out, err := exec.Command("ovs-appctl", "-t", socket, "pod/show", "default/a").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}

	w.topology(map[string]string{"node1": "192.168.2.0/24,fd00:0:2::/64"})
	w.eventually("the pod has both families", func() bool {
		return strings.HasPrefix(w.port("default_a", "addresses"), had+" fd00:0:2::")
	})
	const missing = "runs without address fd00:0:2::"
	if got := w.event("Pod", "a", "AddressMismatch"); !strings.Contains(got, missing) || !strings.Contains(got, "delete the pod") {
		t.Errorf("Event %q", got)
	}
	w.event("Pod", "z", "AddressMismatch")
	if got := show(); !strings.Contains(got, missing) {
		t.Errorf("pod/show: %s", got)
	}
	if status, out, _ := w.once(w.args("--check")...); status != 1 || strings.Count(out, "\n") != 3 || !strings.Contains(out, "! pod/default/a: pod default/a "+missing) {
		t.Errorf("--check: %d, %s", status, out)
	}

	w.topology(map[string]string{"node1": "192.168.2.0/24"})
	w.eventually("the pod has what it had", func() bool { return w.port("default_a", "addresses") == had })
	w.eventually("nothing is told any more", func() bool { return !strings.Contains(show(), "runs with") })
	if status, out, _ := w.once(w.args("--check")...); status != 0 || out != "" {
		t.Errorf("--check: %d, %s", status, out)
	}

	w.topology(map[string]string{"node1": "192.168.7.0/24"})
	const dropped = "its packets are dropped"
	w.eventually("another subnet is told", func() bool { return strings.Contains(show(), dropped) })
	if status, out, _ := w.once(w.args("--check")...); status != 1 || strings.Count(out, dropped) != 3 {
		t.Errorf("--check: %d, %s", status, out)
	}
	p.kill()
	w.topology(map[string]string{"node1": "192.168.2.0/24"})
	w.start("--unixctl=" + socket)
	w.eventually("the pod has what it had, after a restart", func() bool { return w.port("default_a", "addresses") == had })
}
