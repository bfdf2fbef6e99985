package kubelets

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
