package desired

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// heavy is a Service with some ports at 200 external addresses of its own, created at some time.
func heavy(name string, number, ports, created int) *corev1.Service {
	s := withPorts(name, number, ports, created)
	s.Spec.ExternalTrafficPolicy = ""
	for i := range ports {
		s.Spec.Ports[i].NodePort = 0
	}
	for i := range 200 {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("203.0.%d.%d", number, i))
	}
	return s
}

// weightOf is the weight of a Service above loadbalancer.Ordinary.
func weightOf(w *World, name string) int {
	return w.Services.all[service.Key{Namespace: "default", Name: name}].charge.weight
}

func problemOf(w *World, name string) string {
	_, err := w.Rows(nb.Unit("service/default/" + name))
	return fmt.Sprint(err)
}

// L3: the Services of a namespace are limited together. The younger Service above the limit has no load balancers, and
// its Problem has its weight and the limit. All others continue, and so does this one after an older one shrinks or
// goes. Other namespaces have limits of their own.
func TestServicesOfANamespaceAreBounded(t *testing.T) {
	w := manyNodes(t, 3)
	put := func(name string, number, ports int) []nb.Unit {
		return append(w.Put(heavy(name, number, ports, number)), w.Put(portsOn(name, ports, 100, 1))...)
	}
	put("old", 1, 4)
	put("young", 2, 4)
	put("late", 3, 1)
	refused := fmt.Sprintf("service default/young has no load balancers: their weight above %d is %d, rounded up, more than older services of namespace default leave of %d",
		loadbalancer.Ordinary, weightOf(w, "young"), loadbalancer.MaxWeight)
	if got := problemOf(w, "young"); !strings.Contains(got, refused) {
		t.Errorf("young: %s", got)
	}
	if rows, _ := w.Rows("service/default/young"); len(rows) > 0 {
		t.Errorf("young has %d rows", len(rows))
	}
	for _, name := range []string{"old", "late"} {
		if got := problemOf(w, name); got != "<nil>" || len(rowsOf(t, w, nb.Unit("service/default/"+name))) == 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
	elsewhere, slice := heavy("young", 4, 4, 4), portsOn("young", 4, 100, 1)
	elsewhere.Namespace, slice.Namespace = "elsewhere", "elsewhere"
	w.Put(slice)
	w.Put(elsewhere)
	if rows := rowsOf(t, w, "service/elsewhere/young"); len(rows) == 0 {
		t.Error("a Service of another namespace is refused")
	}
	for what, touched := range map[string][]nb.Unit{"shrinks": w.Put(heavy("old", 1, 1, 1)), "grows": put("old", 1, 4), "goes": w.Remove(heavy("old", 1, 8, 1))} {
		if !slices.Contains(touched, nb.Unit("service/default/young")) {
			t.Errorf("the older one %s, and the younger one is not touched", what)
		}
	}
	if got := problemOf(w, "young"); got != "<nil>" || len(rowsOf(t, w, "service/default/young")) == 0 {
		t.Errorf("without the older one: %s", got)
	}
}

// L3: a namespace may have 10 000 ordinary Services, 100 of them with a Local policy over a DaemonSet on 1 000 nodes.
func TestManyOrdinaryServicesAreNotRefused(t *testing.T) {
	w := manyNodes(t, 1000)
	all := daemonSlices("", 1000)
	for i := range 10_000 {
		name := fmt.Sprint("web-", i)
		if i < 100 {
			w.Put(localService(name, i))
			for n, sl := range all {
				sl = sl.DeepCopy()
				sl.Name, sl.Labels["kubernetes.io/service-name"] = fmt.Sprint(name, "-", n), name
				w.Put(sl)
			}
			continue
		}
		s := newService(name, i%250)
		s.Spec.ClusterIPs = []string{fmt.Sprintf("172.16.%d.%d", 10+i/250, i%250)}
		w.Put(s)
		w.Put(portsOn(name, 1, 10, i%1000))
	}
	for k, s := range w.Services.all {
		if s.charge.refused || s.tooLarge {
			t.Fatalf("%s is refused", k)
		}
	}
	used := 0
	for _, s := range w.Services.quotas.of["default"].byAge {
		used += s.charge.weight
	}
	t.Logf("%d Services above an ordinary one, their weight above it is %d of %d", len(w.Services.quotas.of["default"].byAge), used, loadbalancer.MaxWeight)
}

// L3: at the limit of a namespace, an endpoint that comes and goes refuses no other Service.
func TestAnEndpointRefusesNoOtherService(t *testing.T) {
	w := manyNodes(t, 3)
	w.Put(heavy("old", 1, 4, 1))
	w.Put(portsOn("old", 4, 60, 1))
	for i, room := 2, true; room; i++ { // until the limit
		s := heavy(fmt.Sprint("young-", i), i, 1, i)
		s.Spec.ExternalIPs = s.Spec.ExternalIPs[:12]
		w.Put(s)
		if room = problemOf(w, s.Name) == "<nil>"; !room {
			w.Remove(s)
		}
	}
	for _, endpoints := range []int{61, 60, 59, 60} {
		for _, u := range w.Put(portsOn("old", 4, endpoints, 1)) {
			if strings.HasPrefix(string(u), "service/default/young") {
				t.Errorf("with %d endpoints of old, %s is touched", endpoints, u)
			}
		}
	}
}

// L3: the choice of refused Services depends on the objects only, not on the order of events, and each affected unit
// is touched.
func TestRefusedServicesDoNotDependOnOrder(t *testing.T) {
	walk := randomWalk{seeds: 2, steps: 50, stream: 6, refusal: "older services of namespace"}
	walk.check(t, func(r *rand.Rand, name string, number int) (*corev1.Service, *discoveryv1.EndpointSlice) {
		s, sl := heavy(name, 1+number, pick(r, 1, 3, 4, 4), r.IntN(3)), portsOn(name, 4, pick(r, 1, 80, 100, 100), r.IntN(2))
		s.Spec.ExternalIPs[0], s.Spec.ExternalIPs[1] = "198.20.0.100", fmt.Sprintf("198.20.%d.%d", r.IntN(3), 101+number) // gateways answer for these
		if r.IntN(4) == 0 {
			local := corev1.ServiceInternalTrafficPolicyLocal
			s.Spec.InternalTrafficPolicy = &local
		}
		return s, sl
	})
}

// A randomWalk changes five Services and their slices at random, in as many worlds as it has seeds.
type randomWalk struct {
	seeds, stream uint64
	steps         int
	refusal       string // part of the Event about a refused Service
}

// check expects that each step touches all units with other rows, that some Services are refused, and that the last
// objects in another order have the same rows. draw returns the next objects of a Service.
func (x randomWalk) check(t *testing.T, draw func(r *rand.Rand, name string, number int) (*corev1.Service, *discoveryv1.EndpointSlice)) {
	t.Helper()
	for seed := range x.seeds {
		r, w := rand.New(rand.NewPCG(seed, x.stream)), manyNodes(t, 3)
		last, before, refusals := map[string]any{}, texts(w), 0
		for step := range x.steps {
			number := r.IntN(5)
			name := fmt.Sprint("web-", number)
			var touched []nb.Unit
			var key string
			s, sl := draw(r, name, number)
			switch r.IntN(8) {
			case 0:
				key, touched = "service "+name, w.Remove(s)
				delete(last, key)
			case 1:
				key, touched = "slice "+sl.Name, w.Remove(sl)
				delete(last, key)
			case 2, 3, 4:
				key, touched = "service "+name, w.Put(s)
				last[key] = s
			default:
				key, touched = "slice "+sl.Name, w.Put(sl)
				last[key] = sl
			}
			touched = append(touched, w.Allocate()...)
			after := state(w, slices.Collect(maps.Keys(before)))
			for u, rows := range after {
				refusals += strings.Count(rows, x.refusal)
				if was, ok := before[u]; (ok && rows != was || !ok && rows != fmt.Sprint([]nb.Row(nil), error(nil))) && !slices.Contains(touched, u) {
					t.Fatalf("seed %d step %d: %s changed %s, which it did not report (but %v):\n%.600s\n%.600s", seed, step, key, u, touched, was, rows)
				}
			}
			before = after
		}
		fresh := manyNodes(t, 3)
		for _, o := range last {
			fresh.Put(o)
		}
		fresh.Allocate()
		now := state(fresh, slices.Collect(maps.Keys(before)))
		for u, rows := range before {
			if now[u] != rows {
				t.Errorf("seed %d: %s is\n%.500s, in another order\n%.500s", seed, u, rows, now[u])
			}
		}
		if refusals == 0 {
			t.Errorf("seed %d: nothing is refused", seed)
		}
	}
}

// L3: an event of a Service beside thousands of heavy ones of its namespace costs as much as beside few.
func TestHeavyServicesCostNoMoreByEvent(t *testing.T) {
	cost := map[int]uint64{}
	for _, n := range []int{100, 3000} {
		w := manyNodes(t, 3)
		for i := range n {
			s := newService(fmt.Sprint("web-", i), 1)
			s.Spec.ClusterIPs, s.CreationTimestamp = []string{fmt.Sprintf("172.16.%d.%d", 10+i/250, i%250)}, metav1.Unix(int64(i), 0)
			for p := range 20 {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Protocol: corev1.ProtocolTCP, Port: int32(9000 + p)})
			}
			w.Put(s)
		}
		last := newService("web-0", 1)
		last.Spec.ClusterIPs = []string{"172.16.10.0"}
		cost[n] = allocated(func() { w.Put(last) })
	}
	t.Logf("bytes allocated by Services: %v", cost)
	if cost[3000] > 3*cost[100] {
		t.Errorf("bytes allocated by Services: %v", cost)
	}
}

// countedOutside counts the choices of gateways.
type countedOutside struct {
	outside
	choices *int
}

// Held implements answer.Services.
func (x countedOutside) Held(a netip.Addr) bool {
	*x.choices++
	return x.outside.Held(a)
}

// L3: Services with the same addresses, readmitted by one event, cost as much each as beside few others there, and the
// gateway of each address is chosen once.
func TestReadmittedServicesShareTheirAddresses(t *testing.T) {
	each := map[int]uint64{}
	for _, n := range []int{25, 90} {
		w, choices := manyNodes(t, 3), 0
		w.Services.answers = answer.NewIndex(w.facts, countedOutside{outside{w.Services}, &choices})
		put := func(name string, ports, created int) []nb.Unit {
			s := heavy(name, 1, ports, created)
			s.Spec.ClusterIPs = []string{fmt.Sprintf("172.16.10.%d", created)}
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].Port = int32(1000 + 10*created + i)
			}
			return w.Put(s)
		}
		put("old", 4, 0)
		w.Put(portsOn("old", 4, 100, 1))
		for i := range n {
			put(fmt.Sprint("young-", i), 1, 1+i)
		}
		var touched []nb.Unit
		choices = 0
		cost := allocated(func() { touched = put("old", 1, 0) })
		readmitted := 0
		for _, u := range touched {
			if strings.HasPrefix(string(u), "service/default/young") && len(rowsOf(t, w, u)) > 0 {
				readmitted++
			}
		}
		t.Logf("%d Services readmitted beside %d cost %d bytes", readmitted, n, cost)
		each[n] = cost / uint64(max(1, readmitted))
		if choices != 201 { // of 200 addresses outside, and the cluster IP of old
			t.Errorf("%d choices of gateways", choices)
		}
		if readmitted < 5 {
			t.Errorf("only %d Services are readmitted", readmitted)
		}
	}
	if each[90] > 2*each[25] {
		t.Errorf("bytes allocated by each readmitted Service: %v", each)
	}
}
