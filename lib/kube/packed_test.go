package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/names"
)

// largePod is a pod of about 4 kB in JSON, as API servers have them.
func largePod(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprint("namespace-", i/100), Name: fmt.Sprintf("deployment-%d-7d9c5b8f6d-%05d", i/100, i), UID: "6f6cf7b1-3f0e-4e0e-9b0a-8d8d1c9b7a11",
		ResourceVersion: strconv.Itoa(1000 + i), CreationTimestamp: metav1.Time{Time: time.Unix(1700000000, 0)},
		Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprint("deployment-", i/100), "pod-template-hash": "7d9c5b8f6d", "tier": "backend"},
		Annotations: map[string]string{
			names.Annotation:    fmt.Sprintf(`{"ip_address":"10.128.%d.%d/24","mac_address":"0a:58:0a:80:01:03","gateway_ip":"10.128.1.1"}`, i/250%250, i%250),
			names.AnnotationUID: "6f6cf7b1-3f0e-4e0e-9b0a-8d8d1c9b7a11", "config/checksum": strings.Repeat("c", 64),
		},
	}}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:text":"` + strings.Repeat("f", 1500) + `"}`)}}
	p.Spec = corev1.PodSpec{NodeName: fmt.Sprint("node-", i%1000), Containers: []corev1.Container{{
		Name: "server", Image: "registry.example.com/team/server:v1.2.3", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
	}}}
	for e := range 20 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", e), Value: strings.Repeat("v", 40)})
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.128.1.3", PodIPs: []corev1.PodIP{{IP: "10.128.1.3"}}}
	return p
}

// servePages serves n pods in pages.
func servePages(t testing.TB, n int) *Informers {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		to := min(n, from+limit)
		page := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := from; i < to; i++ {
			page.Items = append(page.Items, *largePod(i))
		}
		if to < n {
			page.Continue = strconv.Itoa(to)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(s.Close)
	i := NewInformers(&rest.Config{Host: s.URL})
	if err := i.add(Kinds()); err != nil {
		t.Fatal(err)
	}
	return i
}

// Issue 14, line 5: a list keeps the fields of each object of each page, in the order of the API server.
func TestPackedPagesHaveAllObjects(t *testing.T) {
	const n = 1203
	pods := KindOf(&corev1.Pod{})
	events, err := servePages(t, n).List(t.Context(), pods)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for o := range events[0].Objects {
		want := largePod(i)
		if err := pods.Trim(want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, o); diff != "" {
			t.Fatalf("pod %d (-trimmed +listed)\n%s", i, diff)
		}
		i++
	}
	if i != n {
		t.Errorf("%d pods of %d", i, n)
	}
	for range events[0].Objects {
		break // a receiver need not read all
	}
}

// Issue 14, line 5: objects of each kind of Kubernetes itself are packed.
func TestEachKindIsPacked(t *testing.T) {
	for _, k := range Kinds() {
		if _, ok := k.Object.(message); !ok {
			t.Errorf("%s have no form in protobuf", k.Name)
		}
	}
}

// BenchmarkList measures a list of pods until its receiver takes it: the live heap packed, and with all objects made.
func BenchmarkList(b *testing.B) {
	const n = 20000
	text, _ := json.Marshal(largePod(0))
	pods := KindOf(&corev1.Pod{})
	api := servePages(b, n)
	for b.Loop() {
		before := live()
		events, err := api.List(b.Context(), pods)
		if err != nil {
			b.Fatal(err)
		}
		packed := live()
		all := slices.Collect(events[0].Objects)
		b.ReportMetric(float64(packed-before)/n, "B/pod")
		b.ReportMetric(float64(live()-packed)/n, "B/pod-in-Go")
		b.ReportMetric(float64(len(text)), "B/pod-in-JSON")
		runtime.KeepAlive(all)
		start := time.Now()
		for o := range events[0].Objects {
			runtime.KeepAlive(o)
		}
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/n, "ns/pod-unpacking")
	}
}

// live is the live heap, in bytes.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
