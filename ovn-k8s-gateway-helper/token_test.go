package main

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

// A node's token, bound to its Node as in install.md, warns before its end, and is refused after the Node is
// deleted.
func TestATokenEndsWithItsNode(t *testing.T) {
	require.Nothing(t, require.Cluster, kubetest.Missing())
	if lacks := kubetest.Lacks("tokens bound to Nodes by default", "1.32"); lacks != "" {
		t.Skip(lacks)
	}
	api := cluster.Client().CoreV1()
	node, err := cluster.CreateNode(t.Context(), "with-token")
	if err != nil {
		t.Fatal(err)
	}
	lifetime := int64(720 * 3600)
	answer, err := api.ServiceAccounts("kube-system").CreateToken(t.Context(), "ovn-k8s-gateway-helper", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &lifetime, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: node.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read, ok := settings.ReadToken(config.Config{APIToken: config.Secret(answer.Status.Token)})
	now := time.Now()
	if !ok || read.Problem(now) != "" || read.Problem(now.Add(714*time.Hour)) == "" || !read.Ended(now.Add(721*time.Hour)) {
		t.Errorf("the end of the token: %v, %+v", ok, read)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: cluster.URL, BearerToken: answer.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAFile: cluster.CAFile}})
	if err != nil {
		t.Fatal(err)
	}
	services := func() error {
		_, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := services(); err != nil {
		t.Fatal(err)
	}
	if err := api.Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !apierrors.IsUnauthorized(services()); time.Sleep(100 * time.Millisecond) { // the API server remembers tokens for seconds
		if time.Since(began) > patience {
			t.Fatal("the token outlives its Node")
		}
	}
}
