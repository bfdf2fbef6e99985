package main

import (
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const webPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web.v2, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}]
    ports: [{port: http}]
  - from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}]
`

// labelled gives a pod a label and, if the label is "web", a port.
func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": app}
		if app == "web" {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		}
	}
}

// A policy, from kubectl apply to ACLs and the answers of ovs-appctl.
func TestPolicyIsWrittenAndExplained(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start("--unixctl=" + w.dir + "/ctl")
	appctl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ovs-appctl", append([]string{"-t", w.dir + "/ctl"}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	w.pod("web", "node1", labelled("web"))
	w.annotation("web")
	w.pod("client", "node1", labelled("client"))
	w.annotation("client")
	if err := cluster.Apply(t.Context(), []byte(webPolicy)); err != nil {
		t.Fatal(err)
	}
	check := func(want string, query ...string) {
		t.Helper()
		var got string
		w.eventually(strings.Join(query, " to ")+" is "+want, func() bool {
			got = appctl(append([]string{"policy/check"}, query...)...)
			return strings.Contains(got, want)
		})
	}
	check("ingress: allowed by policy default/web.v2, spec.ingress[0]", "default/client", "default/web:8080")
	check("deny 192.168.2.4 → 192.168.2.3: egress: allowed: no policy isolates it; ingress: denied: isolated by default/web.v2, and no rule allows it", "default/client", "default/web:80/tcp")
	check("allow", "192.0.2.1", "default/web:53/udp")
	check("deny", "192.0.2.129", "default/web:53/udp")
	check("a pod and its own node always reach each other", "192.168.2.2", "default/web")
	check("deny 192.168.2.4 → 192.0.2.1: no pod may send to tunnels", "default/client", "192.0.2.1:6081/udp")
	if out := appctl("policy/show", "default/web"); !strings.Contains(out, "ingress: isolated by 1:\n  default/web.v2: pods with app=web in namespace default\n") ||
		!strings.Contains(out, "egress: everything is allowed") {
		t.Error(out)
	}
	acls := func() []string {
		t.Helper()
		return strings.Fields(w.nbctl("--bare", "--columns=_uuid", "find", "acl", "priority<32000", "external_ids:ovn-k8s-owner!=services"))
	}
	w.eventually("both ACLs, what denies, and those of the node", func() bool {
		return len(acls()) == 5
	})
	for _, text := range []string{"default/web.v2/ingress/0", "default/app=web/ingress/deny", "node1/to-node", "node1/claimed"} {
		if out := w.nbctl("--bare", "--columns=match,external_ids", "find", "acl", `name="`+text+`"`); out == "" {
			t.Errorf("there is no ACL %s", text)
		}
	}
	// A port without pods is worth an Event.
	w.delete("web")
	w.pod("web", "node1", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} })
	w.annotation("web")
	if got := w.event("NetworkPolicy", "web.v2", "NetworkPolicyNotHonoured"); got != `spec.ingress[0].ports: no pod has a container port named "http" for TCP: nothing is allowed by it` {
		t.Errorf("Event %q", got)
	}
	check("deny", "default/client", "default/web:8080")
	if n := strings.Count(p.log.String(), `WARN|spec.ingress[0].ports`); n != 1 {
		t.Errorf("%d WARN lines about one problem", n)
	}
	// The label of a pod decides.
	patch := []byte(`{"metadata":{"labels":{"app":"other"}}}`)
	if _, err := cluster.Client().CoreV1().Pods("default").Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	check("ingress: allowed: no policy isolates it", "default/client", "default/web:8080")
	w.checked() // the rows agree with policy/check
	p.kill()
	before, err := w.central.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	w.start("--unixctl=" + w.dir + "/ctl2")
	w.eventually("the next watcher is done", func() bool {
		out, _ := exec.Command("ovs-appctl", "-t", w.dir+"/ctl2", "policy/show", "default/web").Output()
		return strings.Contains(string(out), "everything is allowed")
	})
	if after, err := w.central.NBTransactions(); err != nil || after != before+1 {
		t.Errorf("a restart wrote %d transactions (%v), want 1, of its term", after-before, err)
	}
	if err := cluster.Client().NetworkingV1().NetworkPolicies("default").Delete(t.Context(), "web.v2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("no rows of policies are left", func() bool {
		return len(acls()) == 0 && w.nbctl("--bare", "--columns=_uuid", "find", "port_group", "external_ids:ovn-k8s-owner!=cluster") == ""
	})
}
