package desired

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// sticky is a Service with NodePorts and session affinity, created at some time.
func sticky(name string, number, ports, created int) *corev1.Service {
	s := withPorts(name, number, ports, created)
	s.Spec.ExternalTrafficPolicy, s.Spec.SessionAffinity = "", corev1.ServiceAffinityClientIP
	return s
}

// L3: the endpoints among which hosts choose are limited for the Services of a namespace together. The younger Service above
// the limit keeps its load balancers, and its Problem has the number and the limit. All others continue, and so does this one
// after an older one shrinks.
func TestChosenEndpointsOfANamespaceAreBounded(t *testing.T) {
	w := manyNodes(t, 3)
	for i, name := range []string{"old", "young", "late"} {
		w.Put(sticky(name, 1+i, 30-i*14, i))
		w.Put(portsOn(name, 30, 200, 1+i))
	}
	w.Allocate()
	over := func(name string) bool {
		r, _ := w.Services.Service(nb.Unit("service/default/" + name))
		return r.OverChosen
	}
	if got := problemOf(w, "old") + problemOf(w, "late"); got != "<nil><nil>" || over("old") || over("late") {
		t.Errorf("old and late: %s", got)
	}
	w.Put(sticky("young", 2, 30, 1))
	want := fmt.Sprintf("connections through hosts to service default/young are not spread over its endpoints: at all ports these are 6144, rounded up, more than older services of namespace default leave of %d", service.MaxChosen)
	if got := problemOf(w, "young"); !strings.Contains(got, want) || !over("young") || over("late") {
		t.Errorf("young: %s", got)
	}
	if rows, _ := w.Rows("service/default/young"); len(rows) == 0 {
		t.Error("young has no load balancers")
	}
	if touched := w.Put(sticky("old", 1, 1, 0)); !slices.Contains(touched, nb.Unit("service/default/young")) || over("young") || problemOf(w, "young") != "<nil>" {
		t.Errorf("after old shrinks: %s", problemOf(w, "young"))
	}
}

// L3: a Service without session affinity, for whose endpoints hosts have no room, has a Problem while one is a host's.
func TestSpareEndpointsOfANamespaceAreBounded(t *testing.T) {
	w := manyNodes(t, 3)
	door := withPorts("door", 1, 60, 0)
	door.Spec.ExternalTrafficPolicy = ""
	w.Put(door)
	w.Put(portsOn("door", 60, 200, 1))
	w.Allocate()
	if got := problemOf(w, "door"); got != "<nil>" {
		t.Errorf("without hosts: %s", got)
	}
	touched := w.Put(ports.Hosts{netip.MustParseAddr("10.0.1.3")})
	if got := problemOf(w, "door"); !slices.Contains(touched, nb.Unit("service/default/door")) || !strings.Contains(got, "connections through hosts with an endpoint of service default/door are not spread") {
		t.Errorf("with a host: %s", got)
	}
}

// L3: the choice of these Services depends on the objects only, not on the order of events, and each affected unit is touched.
func TestChosenEndpointsDoNotDependOnOrder(t *testing.T) {
	walk := randomWalk{seeds: 2, steps: 50, stream: 7, refusal: "through hosts to service"}
	walk.check(t, func(r *rand.Rand, name string, number int) (*corev1.Service, *discoveryv1.EndpointSlice) {
		s := sticky(name, 1+number, pick(r, 1, 15, 20), r.IntN(3))
		if r.IntN(3) == 0 {
			s = withPorts(name, 1+number, 20, r.IntN(3))
		}
		if r.IntN(4) == 0 {
			local := corev1.ServiceInternalTrafficPolicyLocal
			s.Spec.InternalTrafficPolicy = &local
		}
		return s, portsOn(name, 20, pick(r, 1, 200, 240), r.IntN(2))
	})
}
