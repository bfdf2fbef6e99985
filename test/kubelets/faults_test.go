package kubelets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fault is a failure in a cluster (strike), and the init system's reaction (mend).
type fault struct {
	name         string
	strike, mend func(context.Context) error
}

// faults kills each daemon that pods depend on, in start order, and finally all of
// them.
func (c *cluster) faults() []fault {
	r := c.Runtime("minion1")
	daemon := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return r.Kill(ctx, "/var/run/openvswitch/"+name+".pid") }
	}
	all := []fault{
		{"Northbound", always(c.Central.StopNB), func(context.Context) error { return c.Central.StartNB() }},
		{"ovn-northd", always(c.Central.StopNorthd), func(context.Context) error { return c.Central.StartNorthd() }},
		{"ovs-vswitchd", daemon("ovs-vswitchd"), func(ctx context.Context) error { return c.network(ctx, r) }},
		{"ovsdb-server", daemon("ovsdb-server"), r.StartOVS},
		{"ovn-controller", r.StopController, func(ctx context.Context) error { return r.StartController(ctx, c.Central.SBTCP) }},
		{"ovn-k8s-watcher", c.KillWatcher, c.StartWatcher},
		{"ovn-k8s-gateway-helper", daemon("ovn-k8s-gateway-helper"), func(ctx context.Context) error { return c.StartHelper(ctx, r.Node) }},
		{"containerd", always(func() { r.containerd.Stop() }), r.startContainerd},
		{"kubelet", always(func() { r.kubelet.Stop() }), func(context.Context) error { return r.startKubelet() }},
	}
	together := func(step func(fault) func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, f := range all {
				if err := step(f)(ctx); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}
			return nil
		}
	}
	return append(all, fault{"everything",
		together(func(f fault) func(context.Context) error { return f.strike }),
		together(func(f fault) func(context.Context) error { return f.mend })})
}

func always(do func()) func(context.Context) error {
	return func(context.Context) error { do(); return nil }
}

// testFaults injects each fault while a Deployment is scaled up, and again while it
// is scaled down.
func testFaults(t *testing.T, c *cluster) {
	c.clear(t)
	c.kubectl(t, "create", "service", "nodeport", "web", fmt.Sprintf("--tcp=%d", httpPort))
	defer c.kubectl(t, "delete", "service", "web")
	for _, f := range c.faults() {
		t.Run(f.name, func(t *testing.T) {
			c.kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", webReplicas))
			c.await(t, func() error {
				if pods := c.onMinion(t); !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Status.PodIP != "" }) {
					return errors.New("no pod has started")
				}
				return nil
			})
			c.befall(t, f)
			pods := c.awaitPods(t, "app=web", webReplicas)
			c.connected(t, pods)
			c.served(t, pods)
			c.check(t)

			before := len(c.onMinion(t))
			c.kubectl(t, "scale", "deployment/web", "--replicas=4")
			c.await(t, func() error {
				if len(c.onMinion(t)) == before {
					return errors.New("no pod has gone")
				}
				return nil
			})
			c.befall(t, f)
			c.awaitPods(t, "app=web", 4)
			c.schedulable(t)
			pods = c.scale(t, 8)
			c.connected(t, pods)
			c.served(t, pods)
			c.clear(t)
			c.check(t)
		})
	}
}

func (c *cluster) befall(t *testing.T, f fault) {
	t.Helper()
	ctx := c.ctx(t)
	if err := f.strike(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.mend(ctx); err != nil {
		t.Fatal(err)
	}
}

// schedulable waits until all nodes get pods: a restarted kubelet is not ready for some seconds.
func (c *cluster) schedulable(t *testing.T) {
	t.Helper()
	c.await(t, func() error {
		nodes, err := c.kube.Client().CoreV1().Nodes().List(c.ctx(t), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if len(n.Spec.Taints) > 0 {
				return fmt.Errorf("node %s has the taints %v", n.Name, n.Spec.Taints)
			}
		}
		return nil
	})
}

// onMinion returns the pods of web on minion1.
func (c *cluster) onMinion(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := c.kube.Client().CoreV1().Pods("default").List(c.ctx(t), metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "spec.nodeName=minion1"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// served checks that nodes and pods reach the Service web, by its cluster IP and by
// its node port on every node.
func (c *cluster) served(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	s, err := c.kube.Client().CoreV1().Services("default").Get(c.ctx(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	frontends := []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), httpPort)}
	for _, n := range c.Nodes {
		frontends = append(frontends, netip.AddrPortFrom(n.IPv4(), uint16(s.Spec.Ports[0].NodePort)))
	}
	known := names(pods)
	for _, n := range c.Nodes {
		pod := onNode(t, pods, n.Name)
		for _, frontend := range frontends {
			c.await(t, func() error {
				answer, err := get(c.ctx(t), n.Netns(), frontend, "/hostname")
				if err == nil && !slices.Contains(known, answer) {
					err = fmt.Errorf("answer %q", answer)
				}
				return wrap(err, "%s asks %v", n.Name, frontend)
			})
			query := url.Values{"request": {"hostname"}, "protocol": {"http"}, "host": {frontend.Addr().String()}, "port": {fmt.Sprint(frontend.Port())}, "tries": {"1"}}
			c.await(t, func() error {
				answer, err := get(c.ctx(t), n.Netns(), netip.AddrPortFrom(addresses(pod)[0], httpPort), "/dial?"+query.Encode())
				if err == nil && !slices.ContainsFunc(known, func(name string) bool { return strings.Contains(answer, fmt.Sprintf("[%q]", name)) }) {
					err = errors.New(answer)
				}
				return wrap(err, "%s asks %v", pod.Name, frontend)
			})
		}
	}
}

// testFullDisk fills the disk of Open vSwitch's database while pods are created and deleted.
func testFullDisk(t *testing.T, c *cluster) {
	c.clear(t)
	r, ctx := c.Runtime("minion1"), c.ctx(t)
	script := func(text string) {
		t.Helper()
		if _, err := r.Script(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	// The rest of the last page takes a few more small transactions.
	const fill = `cat /dev/zero >/etc/openvswitch/full 2>/dev/null || true
		while ovs-vsctl --no-wait set Open_vSwitch . external_ids:full=$((n += 1)) 2>/dev/null; do :; done`
	const empty = "rm -f /etc/openvswitch/full; ovs-vsctl --no-wait remove Open_vSwitch . external_ids full"
	if err := r.Kill(ctx, "/var/run/openvswitch/ovsdb-server.pid"); err != nil {
		t.Fatal(err)
	}
	script("cp -a /etc/openvswitch /run/copy; mount -t tmpfs -o size=8m tmpfs /etc/openvswitch; cp -a /run/copy/. /etc/openvswitch; rm -r /run/copy")
	if err := r.StartOVS(ctx); err != nil {
		t.Fatal(err)
	}
	defer script(empty)
	script(fill)
	c.kubectl(t, "scale", "deployment/web", "--replicas=6")
	c.await(t, func() error {
		events, err := c.Kubectl(ctx, "get", "events", "--field-selector=reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(events, "Open vSwitch: committing: I/O error") {
			err = fmt.Errorf("events are %q", events)
		}
		return err
	})
	script(empty)
	c.connected(t, c.awaitPods(t, "app=web", 6))
	script(fill)
	c.scale(t, 0) // a full disk must not keep the pods that fill it
	script(empty)
	c.connected(t, c.scale(t, 6))
	c.clear(t) // the end of these pods removes the ports of the former ones, too
	c.check(t)
}

// testDatabaseLost reboots a node with an empty Open vSwitch database, apart from
// the settings of step 3 of the documentation.
func testDatabaseLost(t *testing.T, c *cluster) {
	c.clear(t)
	pods := c.scale(t, 6)
	r, ctx := c.Runtime("minion1"), c.ctx(t)
	settings, err := r.VSGet(ctx, "get", "Open_vSwitch", ".", "external_ids")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.reboot(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Script(ctx, "rm /etc/openvswitch/conf.db /etc/cni/net.d/*; for link in k8s-minion1 br-int breth0; do ip link delete $link; done"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.StartSwitch(ctx), r.VSCtl(ctx, "set", "Open_vSwitch", ".", "external_ids="+settings)); err != nil {
		t.Fatal(err)
	}
	c.up(t, r)
	c.connected(t, c.awaitRestart(t, pods))
	c.clear(t)
	c.check(t)
}
