package objects

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
)

// newTouched returns Objects with all Services known, and a function to record an event and return the parts touched.
func newTouched() (*Objects, func(kube.Event) []string) {
	o := New(Parts{Services: []string{"all"}, Unresolved: "unresolved", Changed: func(was, now *service.Resolved) (parts []string) {
		c := nodeport.ChangeOf(nodeport.Host{}, was, now)
		for part, touched := range map[string]bool{"rules": c.Rules, "conflicts": c.Frontends, "stale": c.UDP, "health": c.Health} {
			if touched {
				parts = append(parts, part)
			}
		}
		return parts
	}}, true)
	take := func(ev kube.Event) []string {
		parts := o.takeService(ev)
		if len(parts) > 0 { // as the loop calls OnDirty
			parts = append(parts, o.Resolve(parts)...)
		}
		return slices.Compact(slices.Sorted(slices.Values(parts)))
	}
	return o, take
}

func aService(name, ip string, protocol corev1.Protocol, nodePort int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, ip
	s.Spec.Ports = []corev1.ServicePort{{Protocol: protocol, Port: 80, NodePort: nodePort}}
	if nodePort > 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	return s
}

func aSlice(of *corev1.Service, address string) *discoveryv1.EndpointSlice {
	name, port, protocol := "", int32(8080), of.Spec.Ports[0].Protocol
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: of.Name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
	return s
}

// An event of a Service touches its dependent parts only. Each one touched all parts.
func TestEventsOfServicesTouchFewParts(t *testing.T) {
	_, take := newTouched()
	web, dns, door := aService("web", "172.30.0.1", "TCP", 0), aService("dns", "172.30.0.2", "UDP", 0), aService("door", "172.30.0.3", "TCP", 30080)
	headless := aService("db", corev1.ClusterIPNone, "TCP", 0)
	endpointsOfHeadless := aSlice(headless, "10.0.1.9")
	endpointsOfHeadless.Labels[names.LabelHeadless] = ""
	probed := aService("probed", "172.30.0.4", "TCP", 0)
	probed.Spec.Type, probed.Spec.ExternalTrafficPolicy, probed.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 31000
	for _, step := range []struct {
		name string
		ev   kube.Event
		want []string
	}{
		{"first list", kube.Event{Kind: kube.KindOf(&corev1.Service{}), Replace: true, Objects: slices.Values([]any{web})}, []string{"all"}},
		{"the same list", kube.Event{Kind: kube.KindOf(&corev1.Service{}), Replace: true, Objects: slices.Values([]any{web})}, nil},
		{"another list", kube.Event{Kind: kube.KindOf(&corev1.Service{}), Replace: true, Objects: slices.Values([]any{web, dns, door})}, []string{"conflicts", "rules", "stale", "unresolved"}},
		{"endpoint of TCP", kube.Event{Object: aSlice(web, "10.0.1.3")}, []string{"unresolved"}},
		{"the same endpoint", kube.Event{Object: aSlice(web, "10.0.1.3")}, nil},
		{"endpoint of UDP", kube.Event{Object: aSlice(dns, "10.0.1.3")}, []string{"stale", "unresolved"}},
		{"endpoint of a NodePort", kube.Event{Object: aSlice(door, "10.0.1.3")}, []string{"rules", "unresolved"}},
		{"headless", kube.Event{Object: headless}, []string{"unresolved"}},
		{"endpoint of headless", kube.Event{Object: endpointsOfHeadless}, nil},
		{"health check", kube.Event{Object: probed}, []string{"health", "unresolved"}},
		{"endpoint of health check", kube.Event{Object: aSlice(probed, "10.0.1.3")}, []string{"health", "unresolved"}},
		{"TCP removed", kube.Event{Object: web, Gone: true}, []string{"unresolved"}},
		{"NodePort removed", kube.Event{Object: door, Gone: true}, []string{"conflicts", "rules", "unresolved"}},
	} {
		if got := take(step.ev); !slices.Equal(got, step.want) {
			t.Errorf("%s touches %v, want %v", step.name, got, step.want)
		}
	}
}

// After random events, Services are those of new Objects with the same state, and lists of former calls stay as they were.
func TestServicesAfterRandomEvents(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		o, take := newTouched()
		services, all := map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}
		var former, copied []*service.Resolved
		for step := range 100 {
			name := fmt.Sprint("web-", r.IntN(8))
			s := aService(name, fmt.Sprint("172.30.0.", 1+r.IntN(8)), "TCP", int32(r.IntN(2)*(30000+r.IntN(4))))
			switch r.IntN(5) {
			case 0:
				delete(services, name)
				take(kube.Event{Object: s, Gone: true})
			case 1:
				all[name] = aSlice(s, fmt.Sprint("10.0.1.", r.IntN(4)))
				take(kube.Event{Object: all[name]})
			case 2:
				take(kube.Event{Object: aSlice(s, "10.0.1.1"), Gone: true})
				delete(all, name)
			default:
				services[name] = s
				take(kube.Event{Object: s})
			}
			fresh, takeFresh := newTouched()
			for _, k := range slices.Sorted(maps.Keys(services)) {
				takeFresh(kube.Event{Object: services[k]})
			}
			for _, sl := range all {
				takeFresh(kube.Event{Object: sl})
			}
			got, want := o.Services(), fresh.Services()
			if a, b := textOf(got), textOf(want); a != b {
				t.Fatalf("seed %d, step %d: %s\nwant %s", seed, step, a, b)
			}
			if !slices.Equal(former, copied) {
				t.Fatalf("seed %d, step %d: the former list was changed", seed, step)
			}
			former, copied = got, slices.Clone(got)
		}
	}
}

func textOf(all []*service.Resolved) (text string) {
	for _, r := range all {
		text += fmt.Sprintf("%s %v:", r.Key, r.Frontends(service.Network{}) == nil)
		for _, f := range r.Frontends(service.Network{}) {
			text += fmt.Sprint(" ", f.Claim())
			for _, e := range f.Backends() {
				text += fmt.Sprint(",", e.AddrPort())
			}
		}
		text += "\n"
	}
	return text
}
