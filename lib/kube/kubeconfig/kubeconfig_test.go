package kubeconfig

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A real API server knows the user of the current context, by certificate and by token.
func TestRead(t *testing.T) {
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the first time it is built
	defer cancel()
	cluster, err := kubetest.Start(ctx, kubetest.Options{Log: func(l string) { t.Log(l) }, Without: []string{"kube-scheduler"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	admin, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	user := admin.AuthInfos[admin.Contexts[admin.CurrentContext].AuthInfo]
	if len(user.ClientCertificateData) == 0 && user.ClientCertificate == "" {
		t.Fatal("the administrator has no certificate")
	}
	ca, err := os.ReadFile(cluster.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	token := write(t, `
current-context: two
contexts: [{name: one, context: {cluster: none}}, {name: two, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+cluster.URL+`", certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: token}}]`)
	for name, text := range map[string]string{"ca.crt": string(ca), "token": cluster.Token} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(token), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{cluster.Kubeconfig, token} {
		cfg, err := Read(file, "test")
		if err != nil {
			t.Fatal(err)
		}
		clients, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clients.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}); err != nil || cfg.UserAgent != "test" || cfg.QPS != -1 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestReadNamesTheProblem(t *testing.T) {
	const whole = `
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://10.0.0.1"}}]
users: [{name: u, user: {token: canary}}]`
	if _, err := Read(write(t, whole), ""); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"current-context: x", "", "it has no current-context; want the name of one of its contexts"},
		{"current-context: x", "current-context: other", `its current-context "other" is none of its contexts`},
		{"cluster: c,", "cluster: d,", `the cluster "d" of context "x" is none of its clusters`},
		{"https://10.0.0.1", "10.0.0.1", `server "10.0.0.1" of cluster "c": want http://HOST:PORT or https://HOST:PORT`},
		{"user: u}}", "user: v}}", `the user "v" of context "x" is none of its users`},
		{"{token: canary}", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: x}}", `user "u" gets its credentials from another program, which is not supported`},
		{"{token: canary}", "{token: canary, client-certificate: /nowhere/x, client-key: /nowhere/y}", "/nowhere/x"},
		{"contexts: [", "contexts: {", "yaml"},
	} {
		_, err := Read(write(t, strings.Replace(whole, tt.old, tt.new, 1)), "")
		if err == nil || !strings.Contains(err.Error(), "bad kubeconfig ") || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "canary") {
			t.Errorf("want %q:\n got %v", tt.want, err)
		}
	}
	if _, err := Read("/nowhere/x", ""); err == nil || !strings.HasPrefix(err.Error(), "kubeconfig file not found: ") || !strings.Contains(err.Error(), "/nowhere/x") {
		t.Errorf("%v", err)
	}
}
