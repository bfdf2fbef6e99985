package loadbalancer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/objects"
)

// manyNodes is a cluster of n nodes with a gateway and an address of each family.
func manyNodes(n int) Inputs {
	at := Inputs{Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Addresses: [2]int{1, 1}, Gateways: map[string]Gateway{}, Selection: Selection{Userspace: true}}
	at.Inside = at.Subnets
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		own := netip.AddrFrom4([4]byte{192, 168, byte(i / 250), byte(i % 250)})
		at.Nodes = append(at.Nodes, service.Node{Name: name, Zone: fmt.Sprint("zone-", i%5)})
		at.Hosts = append(at.Hosts, own)
		at.Gateways[name] = Gateway{name, []netip.Addr{own}, []netip.Addr{own}}
	}
	slices.SortFunc(at.Hosts, netip.Addr.Compare)
	return at
}

// spread returns slices with n endpoints of web on n nodes, 100 in each slice. All endpoints have all ports.
func spread(n, ports int, hint func(int) string) (out []*discoveryv1.EndpointSlice) {
	for from := 0; from < n; from += 100 {
		var hosts []string
		for i := from; i < min(n, from+100); i++ {
			hosts = append(hosts, fmt.Sprintf("10.%d.%d.7@node-%d%s", i/250, i%250, i, hint(i)))
		}
		s := objects.Slice(fmt.Sprint("s", from), 8080, hosts...)
		for p := range ports - 1 {
			name, tcp, number := fmt.Sprint("p", p), corev1.ProtocolTCP, int32(9000+p)
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &tcp, Port: &number})
		}
		out = append(out, s)
	}
	return out
}

func noHint(int) string { return "" }

// bytesOf counts the rows of a Service, and the bytes of these and of its variables.
func bytesOf(s *corev1.Service, all []*discoveryv1.EndpointSlice, at Inputs) (rows, bytes int, r service.Resolved) {
	r = resolve(s, all...)
	for _, row := range New(&r, at).Rows() {
		rows, bytes = rows+1, bytes+len(row.String())
	}
	byGateway := ByGateway(&r, at.Subnets)
	var own []service.Slice
	for _, sl := range all {
		own = append(own, service.NewSlice(sl, strings.Clone))
	}
	for _, n := range at.Nodes {
		var local []service.Slice
		for _, sl := range own {
			if on := sl.On(n.Name); len(on.Endpoints) > 0 {
				local = append(local, on)
			}
		}
		one := service.Resolve(r.Service, local)
		for k, v := range Variables(&one, n.Name, byGateway) {
			bytes += len(k) + len(v)
		}
	}
	return rows, bytes, r
}

// L3: with affinity, NodePorts cost no more than without, not nodes times endpoints (163 MB with 10 ports, 1000
// endpoints and 1000 nodes).
func TestAffinityCostsNoProductOfNodesAndEndpoints(t *testing.T) {
	slices := spread(1000, 10, noHint)
	rows, bytes, _ := bytesOf(objects.Many(10), slices, manyNodes(1000))
	stickyRows, stickyBytes, r := bytesOf(objects.Many(10, objects.Sticky), slices, manyNodes(1000))
	if len(r.Problems) > 0 || stickyRows > rows || stickyBytes > bytes+100 || stickyBytes > 1<<20 {
		t.Errorf("%d rows with %d bytes, without affinity %d and %d: %v", stickyRows, stickyBytes, rows, bytes, r.Problems)
	}
}

// L3: a DaemonSet in the hosts' network with policy Local has load balancers at gateways only, and weighs accordingly.
func TestTheWeightFollowsGateways(t *testing.T) {
	all, few := manyNodes(1000), manyNodes(1000)
	maps.DeleteFunc(few.Gateways, func(name string, _ Gateway) bool { return len(name) > len("node-0") })
	var hosts []string
	for i, a := range all.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s@node-%d", a, i))
	}
	r := resolve(objects.Web(objects.NodePort, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }), objects.Slice("a", 8080, hosts...))
	heavy, _ := New(&r, all).Weight()
	light, ok := New(&r, few).Weight()
	if !ok || len(few.Gateways) != 10 || light*10 > heavy {
		t.Errorf("with %d gateways it weighs %d, with %d %d", len(few.Gateways), light, len(all.Gateways), heavy)
	}
}

// L3: a kubelet that reports many addresses does not make Services of others too heavy for their namespaces.
func TestTheWeightDoesNotFollowKubelets(t *testing.T) {
	at := manyNodes(3)
	at.Addresses = [2]int{2, 1}
	r := resolve(objects.Many(10), spread(3, 10, noHint)...)
	before, _ := New(&r, at).Weight()
	at.Addresses = [2]int{64, 64}
	if now, ok := New(&r, at).Weight(); !ok || now != before {
		t.Errorf("a host with 64 addresses changes the weight from %d to %d", before, now)
	}
}

// L3: nor does such a kubelet take the load balancers of a large Service. It loses its NodePorts at addresses that most hosts do not
// have, no more than needed, and only them.
func TestALargeServiceDoesNotFollowKubelets(t *testing.T) {
	few, many := manyNodes(3), manyNodes(3)
	many.Addresses = [2]int{64, 64}
	r := resolve(objects.Many(10), spread(400, 10, noHint)...)
	want := New(&r, few).Rows()
	with := r
	got := New(&with, many).Rows()
	if len(r.Problems) > 0 || len(want) != 2 || len(got) != 2 || len(with.Problems) != 1 || with.Problems[0].Reason != "ServiceTooLarge" {
		t.Fatalf("%d rows, with 64 addresses %d: %v, %v", len(want), len(got), r.Problems, with.Problems)
	}
	if diff := cmp.Diff(want[0], got[0]); diff != "" {
		t.Errorf("the cluster IPs differ: %s", diff)
	}
	at := map[string]int{} // NodePorts by variable
	for vip := range got[1].Model.(*nbdb.LoadBalancer).Vips {
		name, _, _ := strings.Cut(vip, ":")
		at[name]++
	}
	bytes := len(fmt.Sprint(got))
	if one := (bytes - len(fmt.Sprint(got[0]))) / len(at); len(at) < 3 || bytes > maxBytes || bytes < maxBytes/2-one {
		t.Errorf("%d bytes with %d addresses, of at most %d", bytes, len(at), maxBytes)
	}
	for i := range len(at) { // the first ones, with all ports
		if n := at["^"+AddressVariable(0, i)]; n != 10 {
			t.Errorf("%d NodePorts at address %d of each host", n, i)
		}
	}
	// Even so it may be too large, and so is another without NodePorts.
	huge := resolve(objects.Many(100), spread(1000, 100, noHint)...)
	if rows := New(&huge, many).Rows(); len(rows) > 0 || len(huge.Problems) != 1 {
		t.Errorf("%d rows, %v", len(rows), huge.Problems)
	}
}

// L3: the cost of a Service is computed before any row, with nodes and gateways. A Service above the limit has no
// rows, and a Problem.
func TestCostIsKnownBeforeRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	at, refused := manyNodes(300), 0
	for i := range 60 {
		s, all := hostile(r)
		rows, bytes, svc := bytesOf(s, all, at)
		expected := New(&svc, at).cost()
		if expected.over() != "" {
			if refused++; rows != 0 || !strings.Contains(fmt.Sprint(svc.Problems), "ServiceTooLarge") {
				t.Errorf("%d: %s, but %d rows: %.200s", i, expected.over(), rows, fmt.Sprint(svc.Problems))
			}
			continue
		}
		if rows > expected.rows || bytes > expected.bytes {
			t.Errorf("%d: %d rows of %d bytes, expected at most %+v: %d ports, %d slices, affinity %v, local %v %v", i, rows, bytes, expected,
				len(svc.Ports), len(all), svc.Affinity, svc.InternalLocal, svc.ExternalLocal)
		}
	}
	if refused == 0 || refused > 55 {
		t.Errorf("%d of 60 are refused", refused)
	}
}

// hostile draws a Service with something at its maximum.
func hostile(r *rand.Rand) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	small := func() int { return []int{1, 1, 3, 10, 100, 1000}[r.IntN(6)] }
	local := corev1.ServiceInternalTrafficPolicyLocal
	ports := small()
	s := objects.Many(ports)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for i := range []int{0, 1, 20, 900}[r.IntN(4)] {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf([]string{"203.%d.1.1", "2001:db8::%d"}[r.IntN(2)], i%250))
	}
	for i := range []int{0, 1, 50}[r.IntN(3)] {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("198.51.100.%d", i)})
	}
	for i := range []int{0, 0, 1, 500}[r.IntN(4)] {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("100.100.%d.%d/32", i/250, i%250))
	}
	if r.IntN(2) == 0 {
		objects.Sticky(s)
	}
	if r.IntN(2) == 0 {
		objects.Dual(s)
	}
	if r.IntN(2) == 0 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if r.IntN(3) == 0 {
		s.Spec.InternalTrafficPolicy = &local
	}
	hint := []func(int) string{noHint, func(i int) string { return fmt.Sprintf(" node=node-%d", i%300) }, func(i int) string { return fmt.Sprintf(" zone=zone-%d", i%3) }}[r.IntN(3)]
	endpoints := small()
	all := spread(endpoints, min(ports, 100), hint)
	if r.IntN(3) == 0 && endpoints > 0 {
		all = append(all, objects.Slice("host", 8080, "192.168.0.9@node-9"))
	}
	return s, all
}

// P12: a new or deleted endpoint displaces about ln(n)+1 of n others. Sorted by address, it would be half of them.
func TestPlacesOfEndpointsAreStable(t *testing.T) {
	for _, n := range []int{2, 3, 10, 100, 1000} {
		var all service.Endpoints
		for i := range n {
			all = append(all, service.Endpoint{Host: &service.Host{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(3 + i%250)})}, Port: 8080})
		}
		before := placed(all)
		moved, tries := 0, min(n, 50)
		for gone := range tries {
			fewer := append(slices.Clone(all[:gone]), all[gone+1:]...)
			after := placed(fewer)
			if !slices.Equal(sortedByAddress(after), fewer) {
				t.Fatalf("%d: no permutation", n)
			}
			for i, e := range after {
				if before[i].Addr != e.Addr {
					moved++
				}
			}
		}
		if average, most := float64(moved)/float64(tries), 14.0; average > most || average > 0.75*float64(n) {
			t.Errorf("of %d endpoints, %.1f move when one goes", n, average)
		}
	}
}

func sortedByAddress(es service.Endpoints) service.Endpoints {
	es = slices.Clone(es)
	slices.SortFunc(es, func(a, b service.Endpoint) int { return a.AddrPort().Compare(b.AddrPort()) })
	return es
}

// L3: the variables of nodes are part of the cost: each node with endpoints has the Service's IPv6 addresses, and all
// its endpoints of all slices.
func TestVariablesAreCounted(t *testing.T) {
	const nodes = 200
	s := objects.Web(func(s *corev1.Service) {
		s.Namespace, s.Name = strings.Repeat("n", 63), strings.Repeat("s", 63)
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Type = corev1.ServiceTypeNodePort
		for i := range 400 {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("2001:db8::%x", i+1))
		}
	})
	sl := objects.Slice("six", 8080)
	sl.Namespace, sl.Labels[discoveryv1.LabelServiceName] = s.Namespace, s.Name
	sl.AddressType = discoveryv1.AddressTypeIPv6
	for i := range nodes {
		node := fmt.Sprintf("node-%d", i)
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("fd00:0:0:%x::7", i)}, NodeName: &node})
	}
	r, at, bytes := resolve(s, sl), manyNodes(nodes), 0
	at.Subnets = append(at.Subnets, netip.MustParsePrefix("fd00::/16"))
	for i := range nodes {
		for k, v := range Variables(&r, fmt.Sprintf("node-%d", i), ByGateway(&r, at.Subnets)) {
			bytes += len(k) + len(v)
		}
	}
	if c := New(&r, at).cost(); c.bytes < bytes || bytes < maxBytes {
		t.Errorf("a cost of %d, variables of %d bytes", c.bytes, bytes)
	}
}

// L3: hints do not cost ports times endpoints times names in hints; slices may have any number of names. The hints of
// service/137 in test/hostile took 418 MB.
func TestHintsOfNobodyCostNothing(t *testing.T) {
	for _, kind := range []string{"zone", "node"} {
		hints := func(i int) (text string) {
			for n := range 8 {
				text += fmt.Sprintf(" %s=nowhere-%d-%d", kind, i, n)
			}
			return text
		}
		r, at := resolve(objects.Many(1000), spread(100, 1000, hints)...), manyNodes(1000)
		var c cost
		if alloc := allocated(func() { c = New(&r, at).cost() }); alloc > 20<<20 {
			t.Errorf("%s: %d bytes to know of %d rows and %d bytes", kind, alloc, c.rows, c.bytes)
		}
	}
}

func resolve(s *corev1.Service, slices ...*discoveryv1.EndpointSlice) service.Resolved {
	var all []service.Slice
	for _, sl := range slices {
		all = append(all, service.NewSlice(sl, strings.Clone))
	}
	return service.Resolve(service.New(s), all)
}

// allocated returns the number of bytes allocated by f.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
