package desired

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// The shape of BenchmarkScale: each namespace has pods with labels of their own,
// and policies that select within it. Pods are spread over the nodes.
const (
	scaleNamespaces = 25000
	scalePods       = 4
	scalePolicies   = 3
	scaleNodes      = 1000
)

// A scale is all objects of the shape, as informers hand them over.
type scale struct {
	cluster  topology.Cluster
	spaces   []*corev1.Namespace
	pods     []*corev1.Pod
	policies []*networkingv1.NetworkPolicy
}

func newScale(b *testing.B) (s scale) {
	var err error
	s.cluster, err = topology.New(names.ClusterRouter, prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err != nil {
		b.Fatal(err)
	}
	s.cluster.Nodes = map[string][]netip.Prefix{}
	for i := range scaleNodes {
		s.cluster.Nodes[fmt.Sprint("node-", i)] = prefixes(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
	}
	for i := range scaleNamespaces {
		name := fmt.Sprint("namespace-", i)
		s.spaces = append(s.spaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
		for p := range scalePods {
			s.pods = append(s.pods, scalePod(name, p, fmt.Sprint("app-", p), i*scalePods+p))
		}
		for p := range scalePolicies {
			s.policies = append(s.policies, scalePolicy(name, p))
		}
	}
	return s
}

func scalePod(namespace string, p int, app string, number int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint("pod-", p), UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", number)),
			Labels: map[string]string{"app": app, "version": "v1"},
		},
		Spec: corev1.PodSpec{
			NodeName:   fmt.Sprint("node-", number%scaleNodes),
			Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
		},
	}
}

// scalePolicy lets in pods of the namespace with another label.
func scalePolicy(namespace string, p int) *networkingv1.NetworkPolicy {
	app := func(n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", n)}}
	}
	from := app(p + 1)
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("policy-", p)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: app(p),
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &from}}}},
		},
	}
}

// fill puts everything into an empty World, and computes all rows.
func (s scale) fill(b *testing.B) (w *World, rows int) {
	w = NewWorld()
	w.Put(s.cluster)
	for _, o := range s.spaces {
		w.Put(o)
	}
	for _, o := range s.policies {
		w.Put(o)
	}
	for _, o := range s.pods {
		w.Put(o)
	}
	w.Settle()
	for _, u := range w.Units() {
		r, err := w.Rows(u)
		if err != nil {
			b.Fatal(err)
		}
		rows += len(r)
	}
	return w, rows
}

// BenchmarkScale is 25 000 namespaces with 4 pods and 3 policies each, from
// nothing to all rows, those of the pods' own ports included, and then one pod's
// label after the other. The bounds are 4 s, 1 GB and 1 ms.
func BenchmarkScale(b *testing.B) {
	s := newScale(b)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		w, rows := s.fill(b)
		b.ReportMetric(time.Since(start).Seconds(), "s/all")
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapSys-before.HeapAlloc)/1e6, "MB-peak")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		b.ReportMetric(float64(rows), "rows")
		start = time.Now()
		const changes = 1000
		for i := range changes {
			for _, u := range w.Put(scalePod(fmt.Sprint("namespace-", i), 0, "app-2", i*scalePods)) {
				if _, err := w.Rows(u); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/changes, "µs/label")
	}
}

// BenchmarkEndpoint is one endpoint that moves, of one of 500 Services with ten
// each on 100 nodes: of plain ones, and of ones whose clients prefer endpoints of
// their zone, so that what each node does is its own.
func BenchmarkEndpoint(b *testing.B) {
	const nodes, services, endpoints = 100, 500, 10
	for _, zones := range []int{0, 3} {
		b.Run(fmt.Sprint("zones=", zones), func(b *testing.B) {
			w := NewWorld()
			c := cluster(b)
			for i := range nodes {
				name := fmt.Sprint("node-", i)
				c.Nodes[name] = prefixes(fmt.Sprintf("10.0.%d.0/24", i))
				c = c.WithChassis(name, "chassis-"+name)
			}
			w.Put(c)
			for i := range nodes {
				w.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}}})
			}
			slice := func(s, move int) *discoveryv1.EndpointSlice {
				out := &discoveryv1.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", s), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprint("s", s)}},
					AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: new(int32)}},
				}
				*out.Ports[0].Port = 8080
				for e := range endpoints {
					n := (s + e*7 + move*(e/(endpoints-1))) % nodes
					on := fmt.Sprint("node-", n)
					endpoint := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", n, 10+e)}, NodeName: &on}
					if zones > 0 {
						endpoint.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprint("zone-", n%zones)}}}
					}
					out.Endpoints = append(out.Endpoints, endpoint)
				}
				return out
			}
			for s := range services {
				w.Put(&corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", s)},
					Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("172.16.%d.%d", s/250, 1+s%250), Ports: []corev1.ServicePort{{Port: 80}}},
				})
				w.Put(slice(s, 0))
			}
			move := 0
			b.ResetTimer()
			for b.Loop() {
				move++
				for _, u := range w.Put(slice(move%services, move)) {
					w.Rows(u)
				}
			}
		})
	}
}
