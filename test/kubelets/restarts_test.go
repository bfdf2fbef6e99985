package kubelets

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

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
