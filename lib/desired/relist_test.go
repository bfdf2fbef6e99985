package desired

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// Services and slices listed again, or changed in fields without effect, touch no unit; the changed ones among
// them touch theirs.
func TestServicesListedAgainTouchNothing(t *testing.T) {
	w := manyNodes(t, 3)
	all := func(ip string) (services, sl []any) {
		local := localService("door", 2)
		local.Spec.Type, local.Spec.ExternalIPs = corev1.ServiceTypeNodePort, []string{"198.20.0.77"}
		for _, s := range []*corev1.Service{newService("web", 1), local} {
			s.Annotations = map[string]string{"listed": ip}
			services = append(services, s)
		}
		sl = append(sl, newSlice("web-1", "web", ip+"@node-1"), newSlice("door-1", "door", "10.0.2.9@node-2"))
		return services, sl
	}
	services, sl := all("10.0.1.9")
	w.Replace(&corev1.Service{}, slices.Values(services))
	w.Replace(&discoveryv1.EndpointSlice{}, slices.Values(sl))
	w.Allocate()
	services, sl = all("10.0.1.9")
	touched := append(w.Replace(&corev1.Service{}, slices.Values(services)), w.Replace(&discoveryv1.EndpointSlice{}, slices.Values(sl))...)
	for _, o := range append(services, sl...) {
		touched = append(touched, w.Put(o)...)
	}
	if touched = append(touched, w.Allocate()...); len(touched) > 0 {
		t.Errorf("touched without a change: %v", touched)
	}
	services, sl = all("10.0.1.10")
	touched = append(w.Replace(&corev1.Service{}, slices.Values(services)), w.Replace(&discoveryv1.EndpointSlice{}, slices.Values(sl))...)
	if web := newService("web", 1); len(touched) == 0 || slices.ContainsFunc(touched, func(u nb.Unit) bool { return u != service.Key{Namespace: web.Namespace, Name: web.Name}.Unit() }) {
		t.Errorf("a changed slice of web touches %v", touched)
	}
	// A Service made again by the name of a deleted one is another one.
	again := newService("web", 1)
	again.UID, again.CreationTimestamp = "another", metav1.Unix(7, 0)
	if touched := w.Put(again); !slices.Contains(touched, service.Key{Namespace: again.Namespace, Name: again.Name}.Unit()) {
		t.Errorf("a Service made again touches %v", touched)
	}
}
