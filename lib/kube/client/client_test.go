package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/config"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

const patience = time.Minute

// start starts a control plane for the test and returns a Config for it.
func start(t *testing.T) (*kubetest.Cluster, Config) {
	t.Helper()
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the first time it is built
	defer cancel()
	cluster, err := kubetest.Start(ctx, kubetest.Options{Log: func(l string) { t.Log(l) }, Without: []string{"kube-scheduler"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, Config{Server: cluster.URL, Token: func() string { return cluster.Token }, CAFile: cluster.CAFile, UserAgent: "test"}
}

func annotate(t *testing.T, cluster *kubetest.Cluster, name, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"ovn":%q}}}`, value)
	_, err := cluster.Client().CoreV1().Pods("default").Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
	}
}

func annotated(m *metav1.ObjectMeta) bool { return m.Annotations["ovn"] != "" }

func TestWait(t *testing.T) {
	cluster, config := start(t)
	create := func(name string) {
		t.Helper()
		if _, err := cluster.CreatePod(t.Context(), "default", name, "node1", nil); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(t *testing.T, c Config, name string, ready func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error) {
		t.Helper()
		pods, err := NewPods(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return pods.Wait(ctx, "default", name, ready)
	}

	t.Run("annotated already", func(t *testing.T) {
		create("early")
		annotate(t, cluster, "early", "x")
		m, err := wait(t, config, "early", annotated)
		if err != nil || m.Annotations["ovn"] != "x" || m.UID == "" {
			t.Errorf("%v, %v", m, err)
		}
	})
	t.Run("Check60_annotated later", func(t *testing.T) {
		create("late")
		looks := 0
		m, err := wait(t, config, "late", func(m *metav1.ObjectMeta) bool {
			if looks++; looks == 1 {
				go annotate(t, cluster, "late", "y")
			}
			return annotated(m)
		})
		if err != nil || m.Annotations["ovn"] != "y" {
			t.Errorf("%v, %v", m, err)
		}
		// one call per event: no polling
		if looks != 2 {
			t.Errorf("%d looks", looks)
		}
	})
	t.Run("recreated", func(t *testing.T) {
		create("again")
		annotate(t, cluster, "again", "old")
		old := types.UID("")
		m, err := wait(t, config, "again", func(m *metav1.ObjectMeta) bool {
			if old == "" {
				old = m.UID
				go func() {
					if err := cluster.DeletePod(context.Background(), "default", "again"); err != nil {
						t.Error(err)
					}
					if _, err := cluster.CreatePod(context.Background(), "default", "again", "node1", nil); err != nil {
						t.Error(err)
					}
					annotate(t, cluster, "again", "new")
				}()
			}
			return m.UID != old && annotated(m)
		})
		if err != nil || m.Annotations["ovn"] != "new" {
			t.Errorf("%v, %v", m, err)
		}
	})
	t.Run("never", func(t *testing.T) {
		create("never")
		pods, err := NewPods(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		m, err := pods.Wait(ctx, "default", "never", func(*metav1.ObjectMeta) bool { cancel(); return false })
		if !errors.Is(err, context.Canceled) || m == nil || m.Name != "never" {
			t.Errorf("%v, %v", m, err)
		}
	})
	t.Run("token rotation", func(t *testing.T) {
		create("rotated")
		annotate(t, cluster, "rotated", "z")
		var asked atomic.Int32
		rotating := config
		rotating.Token = func() string {
			if asked.Add(1) == 1 {
				return "outdated"
			}
			return cluster.Token
		}
		if m, err := wait(t, rotating, "rotated", annotated); err != nil || m.Annotations["ovn"] != "z" {
			t.Errorf("%v, %v", m, err)
		}
	})
	t.Run("token and CA in other places", func(t *testing.T) {
		create("files")
		annotate(t, cluster, "files", "f")
		file := t.TempDir() + "/token"
		if err := os.WriteFile(file, []byte(cluster.Token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		pem, err := os.ReadFile(cluster.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		other := Config{Server: cluster.URL, TokenFile: file, CA: pem}
		if m, err := wait(t, other, "files", annotated); err != nil || m.Annotations["ovn"] != "f" {
			t.Errorf("%v, %v", m, err)
		}
	})
	t.Run("what is wrong is said", func(t *testing.T) {
		const secret, longest = "canary-token", 30 * time.Second
		for _, test := range []struct {
			want   string
			config Config
		}{
			{"Unauthorized", Config{Server: cluster.URL, CAFile: cluster.CAFile, Token: func() string { return secret }}},
			{"certificate", Config{Server: cluster.URL, Token: func() string { return secret }}},
			{"refused", Config{Server: "http://127.0.0.1:1", Token: func() string { return secret }}},
		} {
			pods, err := NewPods(test.config)
			if err != nil {
				t.Fatal(err)
			}
			var m *metav1.ObjectMeta
			for patience := 3 * time.Second; ; patience *= 4 { // a busy API server answers later
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				m, err = pods.Wait(ctx, "default", "never", annotated)
				cancel()
				if err == nil || strings.Contains(err.Error(), test.want) || patience > longest {
					break
				}
			}
			if m != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q: %v, %v", test.want, m, err)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("bad message: %v", err)
			}
		}
	})
	t.Run("the connection breaks", func(t *testing.T) {
		create("broken")
		through := proxy(t, strings.TrimPrefix(cluster.URL, "https://"))
		broken := config
		broken.Server = "https://" + through.addr
		looks := 0
		m, err := wait(t, broken, "broken", func(m *metav1.ObjectMeta) bool {
			if looks++; looks == 1 {
				through.cut()
				annotate(t, cluster, "broken", "b")
			}
			return annotated(m)
		})
		if err != nil || m.Annotations["ovn"] != "b" {
			t.Errorf("%v, %v", m, err)
		}
	})
	t.Run("the API server restarts", func(t *testing.T) {
		create("restarted")
		looks := 0
		restarted := make(chan error, 1)
		m, err := wait(t, config, "restarted", func(m *metav1.ObjectMeta) bool {
			if looks++; looks == 1 {
				go func() {
					err := cluster.Restart(context.Background())
					annotate(t, cluster, "restarted", "r")
					restarted <- err
				}()
			}
			return annotated(m)
		})
		if err != nil || m.Annotations["ovn"] != "r" {
			t.Errorf("%v, %v", m, err)
		}
		if err := <-restarted; err != nil {
			t.Error(err)
		}
	})
}

// A forwarder is a TCP proxy with connections that can be cut.
type forwarder struct {
	addr string
	cuts chan struct{}
}

func (f *forwarder) cut() { close(f.cuts) }

func proxy(t *testing.T, to string) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{l.Addr().String(), make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for n := 0; ; n++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			if n == 0 {
				go func() { <-f.cuts; _ = in.Close(); _ = out.Close() }()
			}
		}
	}()
	return f
}

func TestREST(t *testing.T) {
	for _, test := range []struct {
		want   string
		config Config
	}{
		{"K8S_API_SERVER not set", Config{}},
		{"is not a certificate in PEM", Config{Server: "https://10.0.0.1", CA: []byte("x")}},
		{"no such file", Config{Server: "https://10.0.0.1", CAFile: "/nonexistent"}},
	} {
		if _, err := test.config.REST(); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", test.want, err)
		}
	}
	// http needs no certificate
	c, err := Config{Server: "http://10.0.0.1:8080", CAFile: "/nonexistent"}.REST()
	if err != nil || c.QPS != -1 {
		t.Errorf("%+v, %v", c, err)
	}
	from := FromConfig(config.Config{APIServer: "https://a", APIToken: "t", APICA: "pem", APICAFile: "ca"}, "me")
	if from.Server != "https://a" || from.Token() != "t" || string(from.CA) != "pem" || from.CAFile != "ca" || from.UserAgent != "me" {
		t.Errorf("%+v", from)
	}
}
