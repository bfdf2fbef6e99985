package main

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/names"
)

// recorder is a proxy before the API server with a record of requests.
func recorder(t *testing.T, w *world) func() []*http.Request {
	t.Helper()
	target, err := url.Parse(cluster.URL)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []*http.Request
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = insecure()
	proxy.FlushInterval = -1
	server := httptestServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Clone(t.Context()))
		mu.Unlock()
		proxy.ServeHTTP(rw, r)
	}))
	w.url = server.URL
	return func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return append([]*http.Request(nil), seen...)
	}
}

func TestCheck38_TokenAndPatch(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	requests := recorder(t, w)
	w.start()
	w.pod("a", "node1", nil)
	w.annotation("a")
	patches := 0
	for _, r := range requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+cluster.Token {
			t.Errorf("%s %s: Authorization %q", r.Method, r.URL, got)
		}
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/pods/a") {
			patches++
			if got := r.Header.Get("Content-Type"); got != "application/merge-patch+json" {
				t.Errorf("the annotation is patched as %s", got)
			}
		}
	}
	if patches != 1 {
		t.Errorf("%d patches for one pod", patches)
	}
}

func TestCheck39_PodToPort(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	p := w.pod("a", "node1", nil)
	a := w.annotation("a")
	if a.Annotation() != `{"ip_address":"192.168.2.3/24","mac_address":"0a:58:c0:a8:02:03","gateway_ip":"192.168.2.1"}` {
		t.Errorf("annotation %s", a.Annotation())
	}
	if got := w.nbctl("--bare", "get", "logical_switch", "node1", "ports"); !strings.Contains(got, w.port("default_a", "_uuid")) {
		t.Errorf("the port is not on switch node1: %s", got)
	}
	for column, want := range map[string]string{
		"port_security": line(a),
		"options":       "iface-id-ver=" + string(p.UID),
	} {
		if got := w.port("default_a", column); got != want {
			t.Errorf("%s is %q, want %q", column, got, want)
		}
	}
	for _, id := range []string{"namespace=default", "pod=true", "ovn-k8s-owner=pod/default/a", "ovn-k8s-id=default_a"} {
		if got := w.port("default_a", "external_ids"); !strings.Contains(got, id) {
			t.Errorf("external_ids %q lack %s", got, id)
		}
	}
}

func TestCheck39_DualStack(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24,fd00:0:2::/64"})
	w.start()
	w.pod("a", "node1", nil)
	if got := w.annotation("a").Annotation(); got != `{"ip_address":"192.168.2.3/24,fd00:0:2::3/64","mac_address":"0a:58:c0:a8:02:03","gateway_ip":"192.168.2.1,fd00:0:2::1"}` {
		t.Errorf("annotation %s", got)
	}
}

func TestCheck40_PodWithoutNode(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	w.pod("late", "", nil)
	w.pod("other", "node1", nil)
	w.annotation("other")
	if got := w.port("default_late", "name"); got != "" {
		t.Errorf("an unscheduled pod has port %s", got)
	}
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node1"}}
	if err := cluster.Client().CoreV1().Pods("default").Bind(t.Context(), bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.annotation("late")
}

func TestCheck41_Deleted(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.nbctl("lsp-add", "node1", "default_stale", "--", "set", "logical_switch_port", "default_stale", "external_ids:pod=true", "external_ids:namespace=default",
		"--", "lsp-add", "node1", "theirs")
	w.start()
	w.pod("a", "node1", nil)
	w.annotation("a")
	if got := w.port("default_stale", "name"); got != "" {
		t.Error("a stale port of a pod is still there")
	}
	if got := w.port("theirs", "name"); got == "" {
		t.Error("a port of somebody else's is gone")
	}
	w.delete("a")
	w.eventually("the port is gone", func() bool { return w.port("default_a", "name") == "" })
}

func TestCheck55_DeletedWithoutAnnotations(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	w.pod("unscheduled", "", nil)
	w.delete("unscheduled")
	w.pod("lost", "nowhere", nil)
	w.delete("lost")
	w.pod("next", "node1", nil)
	w.annotation("next")
}

func TestCheck57_HostNetworkAndFinished(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	w.pod("host", "node1", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	w.pod("job", "node1", nil)
	first := w.annotation("job")
	if got := w.port("default_host", "name"); got != "" {
		t.Error("a hostNetwork pod has a port")
	}
	_, err := cluster.Client().CoreV1().Pods("default").Patch(t.Context(), "job", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the port of a finished pod is gone", func() bool { return w.port("default_job", "name") == "" })
	w.delete("job")
	w.pod("job", "node1", nil) // at once, under the same name
	w.eventually("the new pod has another address", func() bool { return line(w.annotation("job")) != line(first) })
}

func TestAForeignAnnotationIsCorrected(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	w.pod("victim", "node1", nil)
	victim := w.annotation("victim")
	w.pod("thief", "node1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{names.Annotation: victim.Annotation()}
	})
	thief := w.annotation("thief")
	if line(thief) == line(victim) {
		t.Fatal("a pod got another one's address by its annotation")
	}
	for _, text := range []string{victim.Annotation(), "not JSON", `{"ip_address":"8.8.8.8/24","mac_address":"0a:58:08:08:08:08","gateway_ip":"8.8.8.1"}`} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, names.Annotation, text)
		if _, err := cluster.Client().CoreV1().Pods("default").Patch(t.Context(), "thief", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the annotation is what it was", func() bool {
			p, err := cluster.Client().CoreV1().Pods("default").Get(t.Context(), "thief", metav1.GetOptions{})
			return err == nil && p.Annotations[names.Annotation] == thief.Annotation()
		})
		if got := w.port("default_thief", "addresses"); got != line(thief) {
			t.Errorf("the port has %s now", got)
		}
	}
}
