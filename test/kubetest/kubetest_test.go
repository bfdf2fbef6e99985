package kubetest_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

const manifest = `
# a comment alone is no object
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: robot}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: robot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: robot}
subjects:
- {kind: ServiceAccount, name: robot, namespace: default}
`

func TestCluster(t *testing.T) {
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c, err := kubetest.Start(ctx, kubetest.Options{
		Advertise:   "198.18.0.1",
		ServiceCIDR: "10.96.0.0/16,fd00:10:96::/112",
		Unlimited:   true,
		Log:         func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err = c.CreateNode(ctx, "n1", netip.MustParseAddr("198.18.0.11"))
	check("CreateNode", err)
	_, err = c.CreatePod(ctx, "default", "bound", "n1", nil)
	check("CreatePod", err)
	_, err = c.CreatePod(ctx, "default", "free", "", nil)
	check("CreatePod", err)
	_, err = c.AwaitPod(ctx, "default", "free", func(p *corev1.Pod) bool { return p.Spec.NodeName == "n1" })
	check("waiting for the scheduler", err)
	check("CreateNamespace", c.CreateNamespace(ctx, "other"))

	check("Apply", c.Apply(ctx, []byte(manifest)))
	check("Apply again", c.Apply(ctx, []byte(manifest)))
	token, err := c.ServiceAccountToken(ctx, "default", "robot")
	check("ServiceAccountToken", err)
	if strings.Count(token, ".") != 2 {
		t.Errorf("token of a service account: %q", token)
	}

	before := *c
	check("Restart", c.Restart(ctx))
	if c.URL != before.URL || c.Token != before.Token {
		t.Errorf("after a restart: %s, %s, want %s, %s", c.URL, c.Token, before.URL, before.Token)
	}
	c.Kill()
	check("Restart after Kill", c.Restart(ctx))
	check("DeletePod", c.DeletePod(ctx, "default", "bound"))
	pods, err := c.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	check("listing pods", err)
	if len(pods.Items) != 1 || pods.Items[0].Name != "free" {
		t.Errorf("%d pods after two restarts, want only free", len(pods.Items))
	}
}

func TestStartNamesTheCulprit(t *testing.T) {
	require.Nothing(t, require.Cluster, kubetest.Missing())
	_, err := kubetest.Start(t.Context(), kubetest.Options{Dir: t.TempDir(), Bind: "nonsense"})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("Start: %v, want an error that names the bad address", err)
	}
}
