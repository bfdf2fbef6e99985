package desired

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// The shape of BenchmarkScale: each namespace has pods with labels of their own, and policies selecting within it.
// Pods are spread over the nodes.
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

// scalePolicy allows pods of the namespace with another label.
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

// fill puts all objects into an empty World, and computes all rows.
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
	w.Allocate()
	for _, u := range w.Units() {
		r, err := w.Rows(u)
		if err != nil {
			b.Fatal(err)
		}
		rows += len(r)
	}
	return w, rows
}

// BenchmarkScale is 25 000 namespaces with 4 pods and 3 policies each, from nothing to all rows, also those of the
// pods' own ports, and then one pod's label after the other. The limits are 4 s, 1 GB and 1 ms.
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

// BenchmarkEndpoint moves one endpoint of one of 500 Services with ten each on 100 nodes: first plain Services, then
// Services with hints for zones, so that nodes have different load balancers.
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

// large is a World of 1000 nodes with a host each, 10 000 pods, four gateways,
// 1000 Services of all kinds with ten endpoints, and 100 policies.
func large(b *testing.B) (w *World, c topology.Cluster) {
	const nodes, pods, services, policies = 1000, 10000, 1000, 100
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err != nil {
		b.Fatal(err)
	}
	for i := range nodes {
		c.Nodes[fmt.Sprint("node-", i)] = prefixes(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
	}
	c.Chassis = map[string]string{}
	for i := range nodes {
		c.Chassis[fmt.Sprint("node-", i)] = fmt.Sprint("chassis-", i)
	}
	for i := range 4 {
		if c, err = c.WithGateway(fmt.Sprint("node-", i), topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: fmt.Sprint("chassis-", i), MAC: fmt.Sprintf("02:00:00:00:00:%02x", i),
			IPs: prefixes(fmt.Sprintf("198.18.0.%d/24", i+10)), NextHops: []netip.Addr{netip.MustParseAddr("198.18.0.1")}, Node: fmt.Sprint("node-", i),
		}); err != nil {
			b.Fatal(err)
		}
	}
	w = NewWorld()
	w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16")))
	w.Put(c)
	var all []any
	for i := range nodes {
		all = append(all, largeNode(i, 0))
	}
	w.Replace(&corev1.Node{}, slices.Values(all))
	for i := range 10 {
		w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("namespace-", i), Labels: map[string]string{"team": fmt.Sprint(i)}}})
	}
	for i := range pods {
		w.Put(scalePod(fmt.Sprint("namespace-", i%10), i, fmt.Sprint("app-", i%100), i))
	}
	for i := range policies {
		p := scalePolicy(fmt.Sprint("namespace-", i%10), i)
		p.Spec.Ingress[0].From[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint((i + 1) % 10)}}
		w.Put(p)
	}
	w.Allocate()
	for i := range services {
		w.Put(largeService(i))
		w.Put(largeSlice(i, 0))
	}
	return w, c
}

func largeNode(i, address int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.%d.%d.%d", 100+address, i/250, 1+i%250)}}
	return n
}

// largeService is one of ten: five with a ClusterIP, two with a NodePort, one with external policy Local, one with
// internal policy Local, and one with affinity.
func largeService(i int) *corev1.Service {
	s := newService(fmt.Sprint("s", i), i)
	s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
	local := corev1.ServiceInternalTrafficPolicyLocal
	if i%10 > 4 {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, int32(30000+i)
	}
	switch i % 10 {
	case 7:
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	case 8:
		s.Spec.InternalTrafficPolicy = &local
	case 9:
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	return s
}

// largeSlice has endpoints of a Service, the last of them on another node for each move.
func largeSlice(i, move int) *discoveryv1.EndpointSlice {
	var endpoints []string
	for e := range 10 {
		n := (i*7 + e*97 + move*(e/9)) % 1000
		endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d@node-%d", n/250, n%250, 10+e, n))
	}
	return newSlice(fmt.Sprint("s", i), fmt.Sprint("s", i), endpoints...)
}

// BenchmarkEvent measures one event in a large cluster and the rows of all touched units: each at most 20 ms, except
// for inputs of every node or Service.
func BenchmarkEvent(b *testing.B) {
	w, c := large(b)
	for _, bm := range []struct {
		name  string
		event func(i int) []nb.Unit
	}{
		{"heartbeat", func(i int) []nb.Unit { return w.Put(largeNode(i%1000, 0)) }},
		{"node address", func(i int) []nb.Unit { return w.Put(largeNode(500, i%2)) }},
		{"node comes", func(i int) []nb.Unit {
			if i%2 == 1 {
				return w.Remove(largeNode(1000, 0))
			}
			return w.Put(largeNode(1000, 0))
		}},
		{"switch comes", func(i int) []nb.Unit {
			if i%2 == 1 {
				return w.Put(c)
			}
			more, err := c.WithNode("node-1000", prefixes("10.200.0.0/24"))
			if err != nil {
				b.Fatal(err)
			}
			return w.Put(more.WithChassis("node-1000", "chassis-1000"))
		}},
		{"gateway dies", func(i int) []nb.Unit { return w.Put(facts.Silent{"node-1": i%2 == 0}) }},
		{"gateway changes", func(i int) []nb.Unit {
			more, err := c.WithGateway("node-1", func() topology.Gateway {
				g := c.Gateways["node-1"]
				g.VLAN = i % 2
				return g
			}())
			if err != nil {
				b.Fatal(err)
			}
			return w.Put(more)
		}},
		{"ClusterIP", func(i int) []nb.Unit { return w.Put(toggled(i, largeService(0))) }},
		{"NodePort", func(i int) []nb.Unit { return w.Put(toggled(i, largeService(5))) }},
		{"external policy Local", func(i int) []nb.Unit { return w.Put(toggled(i, largeService(7))) }},
		{"internal policy Local", func(i int) []nb.Unit { return w.Put(toggled(i, largeService(8))) }},
		{"affinity", func(i int) []nb.Unit { return w.Put(toggled(i, largeService(9))) }},
		{"endpoint", func(i int) []nb.Unit { return w.Put(largeSlice(0, i)) }},
		{"endpoint of NodePort", func(i int) []nb.Unit { return w.Put(largeSlice(5, i)) }},
		{"endpoint of external policy Local", func(i int) []nb.Unit { return w.Put(largeSlice(7, i)) }},
		{"endpoint of internal policy Local", func(i int) []nb.Unit { return w.Put(largeSlice(8, i)) }},
		{"endpoint with affinity", func(i int) []nb.Unit { return w.Put(largeSlice(9, i)) }},
		{"pod", func(i int) []nb.Unit {
			p := scalePod("namespace-1", 10000, "app-1", 1)
			if i%2 == 1 {
				return w.Remove(p)
			}
			return w.Put(p)
		}},
		{"pod with a hostPort", func(i int) []nb.Unit {
			p := withHostPort(scalePod("namespace-1", 10001, "app-1", 1), "", 9100, corev1.ProtocolTCP)
			if i%2 == 1 {
				return w.Remove(p)
			}
			return w.Put(p)
		}},
		{"label of a namespace", func(i int) []nb.Unit {
			return w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace-1", Labels: map[string]string{"team": fmt.Sprint(1 + i%2)}}})
		}},
		{"policy", func(i int) []nb.Unit {
			p := scalePolicy("namespace-1", 10001)
			if i%2 == 1 {
				return w.Remove(p)
			}
			return w.Put(p)
		}},
		{"ServiceCIDR", func(i int) []nb.Unit {
			return w.Put(serviceCIDR("more", fmt.Sprintf("172.%d.0.0/16", 30+i%2)))
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			i, units := 0, 0
			for b.Loop() {
				touched := append(bm.event(i), w.Allocate()...)
				dirty := map[nb.Unit]bool{}
				for _, u := range touched {
					dirty[u] = true
				}
				for u := range dirty {
					_, _ = w.Rows(u) // Problems are expected
				}
				i, units = i+1, units+len(dirty)
			}
			b.ReportMetric(float64(units)/float64(i), "units/op")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(i)/1000, "ms/op")
		})
	}
}

// toggled returns a Service with one port or, for odd i, another one.
func toggled(i int, s *corev1.Service) *corev1.Service {
	s.Spec.Ports[0].Port += int32(i % 2)
	return s
}
