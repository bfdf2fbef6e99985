package nbsync_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
)

// big is a world of 100 nodes with n pods.
func big(b testing.TB, n int) *desired.World {
	w := desired.NewWorld()
	nodes := make([]int, 100)
	for i := range nodes {
		nodes[i] = i
	}
	w.Put(cluster(b, nodes...))
	for i := range n {
		w.Put(newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%100)))
	}
	w.Allocate()
	return w
}

// BenchmarkPlan is a comparison without differences: of all of 10 000 pods, and of one among them.
func BenchmarkPlan(b *testing.B) {
	_, _, s := open(b)
	w := big(b, 10000)
	apply(b, s, rowsOf(w, w.Units()))
	for _, n := range []int{1, 10000} {
		units := w.Units()[:n]
		b.Run(fmt.Sprint("units=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan, err := s.Plan(rowsOf(w, units))
				if err != nil || len(plan.Changes) > 0 {
					b.Fatal(plan.Changes, err)
				}
			}
		})
	}
}

// BenchmarkServices adds 500 Services of ten endpoints, in transactions of 25: first each without endpoints, then
// with them.
func BenchmarkServices(b *testing.B) {
	_, _, s := open(b)
	w := big(b, 0)
	apply(b, s, rowsOf(w, w.Units()))
	round := 0
	b.ReportAllocs()
	for b.Loop() {
		round++
		dirty := map[nb.Unit]bool{}
		flush := func() {
			apply(b, s, rowsOf(w, slices.Collect(maps.Keys(dirty))))
			clear(dirty)
		}
		for i := range 500 {
			for _, o := range aService(fmt.Sprintf("s%d-%d", round, i), i) {
				for _, u := range w.Put(o) {
					dirty[u] = true
				}
				if len(dirty) == 25 {
					flush()
				}
			}
		}
		flush()
	}
}

func aService(name string, i int) []any {
	port := int32(8080)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: &port}},
	}
	for e := range 10 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", i%100, 10+e)}})
	}
	return []any{&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("172.16.%d.%d", i/250, 1+i%250), Ports: []corev1.ServicePort{{Port: 80}}},
	}, slice}
}

// BenchmarkPolicies adds and removes 200 policies at once, each over 50 of 1000 pods.
func BenchmarkPolicies(b *testing.B) {
	_, _, s := open(b)
	w := big(b, 0)
	for i := range 1000 {
		p := newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%100))
		p.Labels = map[string]string{"group": fmt.Sprint(i % 20)}
		w.Put(p)
	}
	w.Allocate()
	apply(b, s, rowsOf(w, w.Units()))
	change := func(change func(any) []nb.Unit) {
		dirty := map[nb.Unit]bool{}
		for i := range 200 {
			for _, u := range change(aPolicy(i)) {
				dirty[u] = true
			}
		}
		apply(b, s, rowsOf(w, slices.Collect(maps.Keys(dirty))))
	}
	b.ReportAllocs()
	for b.Loop() {
		change(w.Put)
		b.StopTimer()
		change(w.Remove)
		b.StartTimer()
	}
}

// aPolicy allows ingress from one group to another.
func aPolicy(i int) *networkingv1.NetworkPolicy {
	group := func(n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"group": fmt.Sprint(n % 20)}}
	}
	peer, port := group(i+1+i/20), intstr.FromInt32(int32(8000+i))
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("policy-", i)},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: group(i), Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &peer}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
		}}},
	}
}
