package policy

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod"
)

// The shape of BenchmarkScale: each namespace has pods with labels of their own,
// and policies that select within it.
const (
	scaleNamespaces = 25000
	scalePods       = 4
	scalePolicies   = 3
)

// fillScale puts the shape into an empty index, and computes all rows.
func fillScale(x *Index, spaces []*corev1.Namespace, policies []*networkingv1.NetworkPolicy) (rows int) {
	for i, n := range spaces {
		x.PutNamespace(n)
		for p := range scalePods {
			x.PutPod(pod.Key{Namespace: n.Name, Name: fmt.Sprint("pod-", p)}, podLabels(p, "v1"), []Port{{"http", corev1.ProtocolTCP, 8080}})
		}
		for _, p := range policies[i*scalePolicies : (i+1)*scalePolicies] {
			x.PutPolicy(New(p))
		}
	}
	for _, u := range x.Units() {
		r, _ := x.Rows(u)
		rows += len(r)
	}
	return rows
}

func podLabels(p int, version string) map[string]string {
	return map[string]string{"app": fmt.Sprint("app-", p), "version": version}
}

func scaleShape() (spaces []*corev1.Namespace, policies []*networkingv1.NetworkPolicy) {
	for i := range scaleNamespaces {
		name := fmt.Sprint("namespace-", i)
		spaces = append(spaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
		for p := range scalePolicies {
			policies = append(policies, &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprint("policy-", p)},
				Spec: networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", p)}},
					Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
						{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", p+1)}}},
					}}},
				},
			})
		}
	}
	return spaces, policies
}

// BenchmarkScale is 25 000 namespaces with 4 pods and 3 policies each, from
// nothing to all rows, and then one pod's label after the other. The bounds are
// 4 s, 1 GB and 1 ms.
func BenchmarkScale(b *testing.B) {
	spaces, policies := scaleShape()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		x := NewIndex()
		rows := fillScale(x, spaces, policies)
		b.ReportMetric(time.Since(start).Seconds(), "s/all")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		b.ReportMetric(float64(rows), "rows")
		start = time.Now()
		const changes = 1000
		for i := range changes {
			k := pod.Key{Namespace: fmt.Sprint("namespace-", i), Name: "pod-0"}
			for _, u := range x.PutPod(k, podLabels(2, "v2"), nil) {
				x.Rows(u)
			}
			x.Refs(k)
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/changes, "µs/label")
	}
}

// Rows grow with rules and distinct selectors, and not with pods.
func TestRowsGrowWithRulesAndSelectors(t *testing.T) {
	x := NewIndex()
	x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for i := range 1000 {
		x.PutPod(pod.Key{Namespace: "default", Name: fmt.Sprint("p", i)}, podLabels(i%20, "v1"), nil)
	}
	for i := range 200 {
		x.PutPolicy(New(&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("policy", i)},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", i%20)}},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", (i+1)%20)}}},
				}}},
			},
		}))
	}
	tables := map[string]int{}
	for _, u := range x.Units() {
		rows, problem := x.Rows(u)
		if problem != "" {
			t.Error(problem)
		}
		for _, r := range rows {
			tables[r.Table]++
		}
	}
	// One group for each selector, one ACL for each rule, and one for each
	// selector that denies.
	if tables["Port_Group"] != 20 || tables["ACL"] != 200+20 || len(tables) != 2 {
		t.Errorf("rows: %v", tables)
	}
	k := pod.Key{Namespace: "default", Name: "new"}
	if touched := x.PutPod(k, podLabels(3, "v1"), nil); len(touched) != 1 || len(x.Refs(k)) != 1 {
		t.Errorf("a pod that starts touches %v and is in %v", touched, x.Refs(k))
	}
	if touched := x.PutPod(k, podLabels(4, "v1"), nil); len(touched) != 1 || len(x.Refs(k)) != 1 {
		t.Errorf("a pod with another label touches %v and is in %v", touched, x.Refs(k))
	}
}
