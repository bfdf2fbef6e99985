package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/objects"
)

func same(s string) string { return s }

func resolve(s *corev1.Service, slices ...*discoveryv1.EndpointSlice) Resolved {
	var all []Slice
	for _, sl := range slices {
		all = append(all, NewSlice(sl, same))
	}
	return Resolve(New(s), all)
}

func addresses(es Endpoints) string {
	var out []string
	for _, e := range es {
		out = append(out, e.AddrPort().String())
	}
	return strings.Join(out, " ")
}

func TestEndpointsOfAConnection(t *testing.T) {
	node := Node{"n1", "z1"}
	for _, tt := range []struct {
		name                 string
		hosts                []string
		cluster, from, local string
	}{
		{"none", nil, "", "", ""},
		{"ready ones", []string{"10.0.1.3@n1", "10.0.2.3@n2", "10.0.1.4@n1 unready"},
			"10.0.1.3:8080 10.0.2.3:8080", "10.0.1.3:8080 10.0.2.3:8080", "10.0.1.3:8080"},
		{"those that drain only if none is ready", []string{"10.0.1.3@n1 draining", "10.0.2.3@n2"},
			"10.0.2.3:8080", "10.0.2.3:8080", "10.0.1.3:8080"},
		{"those that drain if all do", []string{"10.0.1.3@n1 draining", "10.0.2.3@n2 gone"},
			"10.0.1.3:8080", "10.0.1.3:8080", "10.0.1.3:8080"},
		{"the zone's", []string{"10.0.1.3@n1 zone=z2", "10.0.2.3@n2 zone=z1"},
			"10.0.1.3:8080 10.0.2.3:8080", "10.0.2.3:8080", "10.0.1.3:8080"},
		{"all without hints on each", []string{"10.0.1.3@n1", "10.0.2.3@n2 zone=z1"},
			"10.0.1.3:8080 10.0.2.3:8080", "10.0.1.3:8080 10.0.2.3:8080", "10.0.1.3:8080"},
		{"all without one for the zone", []string{"10.0.1.3@n1 zone=z2", "10.0.2.3@n2 zone=z3"},
			"10.0.1.3:8080 10.0.2.3:8080", "10.0.1.3:8080 10.0.2.3:8080", "10.0.1.3:8080"},
		{"the node's before the zone's", []string{"10.0.1.3@n1 zone=z1 node=n1", "10.0.1.9@n9 zone=z1 node=n9"},
			"10.0.1.3:8080 10.0.1.9:8080", "10.0.1.3:8080", "10.0.1.3:8080"},
		{"the zone's without one for the node", []string{"10.0.1.3@n7 zone=z1 node=n7", "10.0.1.9@n9 zone=z2 node=n9"},
			"10.0.1.3:8080 10.0.1.9:8080", "10.0.1.3:8080", ""},
		{"hints of what drains do not count", []string{"10.0.1.3@n1 draining zone=z1", "10.0.2.3@n2 zone=z2"},
			"10.0.2.3:8080", "10.0.2.3:8080", "10.0.1.3:8080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			es := resolve(objects.Web(), objects.Slice("a", 8080, tt.hosts...)).Endpoints[0]
			got := []string{addresses(es.Cluster()), addresses(es.ClusterFrom(node)), addresses(es.Local("n1"))}
			if diff := cmp.Diff([]string{tt.cluster, tt.from, tt.local}, got); diff != "" {
				t.Errorf("cluster, from n1, local (-want +got):\n%s", diff)
			}
		})
	}
}

// A controller of slices need not write all conditions: without serving, a terminating endpoint still serves.
func TestConditionsThatAreNotThere(t *testing.T) {
	yes, no := true, false
	for want, c := range map[State]discoveryv1.EndpointConditions{
		Serving:  {},
		Draining: {Ready: &no, Terminating: &yes},
		Unready:  {Ready: &no},
	} {
		if got := state(c); got != want {
			t.Errorf("%+v: state %d, want %d", c, got, want)
		}
	}
}

func TestEndpointsOfSeveralSlices(t *testing.T) {
	r := resolve(objects.Web(),
		objects.Slice("b", 8080, "10.0.1.3@n1 unready", "10.0.1.4@n1 draining"),
		objects.Slice("a", 8080, "10.0.1.3@n1", "10.0.1.4@n1"),
		objects.Slice("other-port", 9090, "10.0.1.5@n1"), // a named targetPort with another number there
		objects.Slice("six", 8080, "fd00::5@n1"),
	)
	if got, want := addresses(r.Endpoints[0]), "10.0.1.3:8080 10.0.1.4:8080 10.0.1.5:9090 [fd00::5]:8080"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := addresses(r.Endpoints[0].Of(netip.IPv6Unspecified())), "[fd00::5]:8080"; got != want {
		t.Errorf("IPv6: got %s, want %s", got, want)
	}
}

func TestTheOrderOfSlicesDoesNotMatter(t *testing.T) {
	all := []*discoveryv1.EndpointSlice{
		objects.Slice("a", 8080, "10.0.1.3@n1 zone=z1", "127.0.0.1"), objects.Slice("b", 8080, "10.0.1.3@n1 draining", "169.254.1.1"),
		objects.Slice("c", 8080, "10.0.1.3@n2 zone=z2", "224.0.0.1"), objects.Slice("d", 8081, "10.0.0.9"),
	}
	want := fmt.Sprint(resolve(objects.Web(), all...))
	for seed := range uint64(20) {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := fmt.Sprint(resolve(objects.Web(), all...)); got != want {
			t.Fatalf("(-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

func TestServicesOfOthersAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"headless":         func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
		"without address":  func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil },
		"external name":    func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" },
		"other proxy":      func(s *corev1.Service) { s.Labels = map[string]string{names.LabelServiceProxy: "mine"} },
		"labelled as such": func(s *corev1.Service) { s.Labels = map[string]string{names.LabelHeadless: ""} },
	} {
		if New(objects.Web(change)).Ours {
			t.Errorf("%s: taken for ours", name)
		}
	}
}

func TestWhatAServiceSays(t *testing.T) {
	local, proxy := corev1.ServiceInternalTrafficPolicyLocal, corev1.LoadBalancerIPModeProxy
	got := New(objects.Web(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIPs = []string{"172.16.1.10", "fd00:10::a"}
		s.Spec.Ports[0].NodePort = 30080
		s.Spec.ExternalIPs = []string{"203.0.113.9"}
		s.Spec.InternalTrafficPolicy = &local
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = 31000
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.LoadBalancerSourceRanges = []string{" 192.0.2.0/24"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &proxy}, {Hostname: "lb.example"}}
	}))
	want := Service{
		Key: Key{"default", "web"}, UID: "uid-web", Created: got.Created, Type: corev1.ServiceTypeLoadBalancer, Ours: true,
		ClusterIPs:    []netip.Addr{netip.MustParseAddr("172.16.1.10"), netip.MustParseAddr("fd00:10::a")},
		Ports:         []Port{{"http", corev1.ProtocolTCP, 80, 30080}},
		ExternalIPs:   []netip.Addr{netip.MustParseAddr("203.0.113.9")},
		Ingress:       []Ingress{{netip.MustParseAddr("198.51.100.1"), false}, {netip.MustParseAddr("198.51.100.2"), true}},
		Outside:       []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("198.51.100.1")},
		SourceRanges:  []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		InternalLocal: true, ExternalLocal: true, Affinity: 10800, HealthCheckNodePort: 31000,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRepeatedAddressesCountOnce(t *testing.T) {
	proxy := corev1.LoadBalancerIPModeProxy
	r := resolve(objects.Web(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"203.0.113.9", s.Spec.ClusterIP, "203.0.113.9"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "203.0.113.9", IPMode: &proxy}, {IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &proxy}, {IP: "198.51.100.1", IPMode: &proxy}, {IP: "198.51.100.2"},
		}
	}))
	var got []string
	for _, f := range r.Frontends(Network{}) {
		if f.IsOutside() {
			got = append(got, fmt.Sprint(f.Addr, " ", f.Kind, " ", f.Proxy))
		}
	}
	want := []string{fmt.Sprint("203.0.113.9 ", ExternalIP, " false"), fmt.Sprint("198.51.100.1 ", LoadBalancerIP, " false"), fmt.Sprint("198.51.100.2 ", LoadBalancerIP, " true")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if slices.Contains(r.Outside, netip.MustParseAddr("198.51.100.2")) {
		t.Error("the address of a load balancer outside is claimed")
	}
}

// An address of the load balancer is open to the source ranges only, also if it is an external IP.
func TestAnExternalIPOpensNoLoadBalancer(t *testing.T) {
	r := resolve(objects.Web(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"203.0.113.9", "198.51.100.1"}
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	}))
	got := map[string]bool{}
	for _, f := range r.Frontends(Network{}) {
		if f.IsOutside() {
			got[f.Addr.String()] = f.Guarded()
		}
	}
	if diff := cmp.Diff(map[string]bool{"203.0.113.9": false, "198.51.100.1": true}, got); diff != "" {
		t.Errorf("guarded (-want +got):\n%s", diff)
	}
}

func TestBadInputIsNamed(t *testing.T) {
	many := make([]string, MaxEndpoints+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i)}).String()
	}
	for _, tt := range []struct {
		name, want string
		service    func(*corev1.Service)
		hosts      []string
		left       int // endpoints used
	}{
		{name: "external IP", want: `externalIP 127.0.0.1 of service default/web is a loopback address`,
			service: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"127.0.0.1"} }},
		{name: "load balancer", want: `load balancer address "banana" of service default/web is no IP address`,
			service: func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "banana"}}
			}},
		{name: "source range", want: `loadBalancerSourceRanges "10.0.0.0" of service default/web is no subnet`,
			service: func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0"}
			}},
		{name: "port", want: "port 70000/TCP of service default/web is no port", service: func(s *corev1.Service) { s.Spec.Ports[0].Port = 70000 }},
		{name: "node port", want: "nodePort 70000 of service default/web is no port", service: func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 70000 }},
		{name: "kubelet's port", want: "nodePort 10250/TCP of service default/web is a port that every node needs itself: choose another one",
			service: func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 10250 }},
		{name: "loopback endpoint", want: "endpoint 127.0.0.1 of service default/web is a loopback address", hosts: []string{"127.0.0.1", "10.0.0.3"}, left: 1},
		{name: "link-local endpoint", want: "endpoint 169.254.169.254 of service default/web is a link-local address", hosts: []string{"169.254.169.254"}},
		{name: "link-local endpoint IPv6", want: "endpoint fe80::1 of service default/web is a link-local address", hosts: []string{"fe80::1"}},
		{name: "family", want: `endpoint "10.0.0.3" of service default/web is no IPv6 address: correct endpoint slice a`, hosts: []string{"10.0.0.3", "fd00::3"}, left: 1},
		{name: "too many", want: "port 80/TCP of service default/web has more than 1000 IPv4 endpoints, the first of which are used", hosts: many, left: MaxEndpoints},
		{name: "too many in all", want: "service default/web has no endpoints from port 80/TCP on: with its 1000 at each of its addresses it would have more than 200000 in all", hosts: many[1:],
			service: func(s *corev1.Service) {
				for i := range 200 {
					s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprint("203.0.113.", i))
				}
			}},
		{name: "mapped endpoint", want: `endpoint "::ffff:127.0.0.1" of service default/web is no IPv6 address`, hosts: []string{"fd00::3", "::ffff:127.0.0.1"}, left: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := objects.Web()
			if tt.service != nil {
				tt.service(s)
			}
			r := resolve(s, objects.Slice("a", 8080, tt.hosts...))
			if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, tt.want) {
				t.Errorf("got problems %q, want %q", r.Problems, tt.want)
			}
			if len(r.Ports) > 0 && r.Ports[0].NodePort != 0 {
				t.Errorf("the nodePort is %d", r.Ports[0].NodePort)
			}
			if len(r.Endpoints) > 0 && len(r.Endpoints[0]) != tt.left {
				t.Errorf("%d endpoints are left, want %d", len(r.Endpoints[0]), tt.left)
			}
		})
	}
}

func TestABadSourceRangeDoesNotOpenTheDoor(t *testing.T) {
	s := New(objects.Web(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerSourceRanges = []string{"banana"}
	}))
	if len(s.SourceRanges) == 0 || slices.ContainsFunc(s.SourceRanges, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr("192.0.2.1")) }) {
		t.Errorf("got %v", s.SourceRanges)
	}
}

// API servers keep former spellings of addresses: they are served like all others.
func TestFormerSpellingsOfAddresses(t *testing.T) {
	r := resolve(objects.Web(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIPs, s.Spec.ExternalIPs = []string{"172.016.1.10"}, []string{"::ffff:203.0.113.9"}
		s.Spec.LoadBalancerSourceRanges = []string{"::ffff:192.0.2.0/120", "010.0.0.0/8"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.051.100.1"}}
	}), objects.Slice("a", 8080, "010.0.0.5@n1"))
	got := fmt.Sprintf("%v %v %v %s %v", r.ClusterIPs, r.Outside, r.SourceRanges, addresses(r.Endpoints[0]), r.Problems)
	if want := "[172.16.1.10] [203.0.113.9 198.51.100.1] [192.0.2.0/24 10.0.0.0/8] 10.0.0.5:8080 []"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTheOlderServiceIsFirst(t *testing.T) {
	a, b := Service{Key: Key{"default", "web"}, Created: 2}, Service{Key: Key{"default", "zz"}, Created: 1}
	if a.Older(b) < 0 || b.Older(a) > 0 {
		t.Error("the younger one is first")
	}
	if a.Created = 1; a.Older(b) > 0 || a.Older(a) != 0 {
		t.Error("of the same age, the name does not decide")
	}
}

// One Service cannot overload the cluster: its excess is left out, with one Problem.
func TestAServiceThatIsTooLarge(t *testing.T) {
	external := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255))
		}
		return out
	}
	ports := func(s *corev1.Service, n int) {
		s.Spec.Ports = nil
		for i := range n {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(1 + i)})
		}
	}
	ranges := func(s *corev1.Service, n int) {
		s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer, []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		for i := range n {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("192.%d.%d.0/24", i>>8, i&255))
		}
	}
	const none = "service default/web has none of its external and load balancer addresses: "
	for _, tt := range []struct {
		name         string
		change       func(*corev1.Service)
		ports, outer int
		want         string
	}{
		{"as many addresses as there may be", func(s *corev1.Service) { s.Spec.ExternalIPs = external(1000) }, 1, 1000, ""},
		{"addresses", func(s *corev1.Service) { s.Spec.ExternalIPs = external(1001) }, 1, 0, none + "1001 are more than 1000: split the service"},
		{"ports at addresses", func(s *corev1.Service) { s.Spec.ExternalIPs = external(1000); ports(s, 50) }, 50, 0,
			none + "with all ports they would be 50100 frontends, more than 50000: split the service"},
		{"source ranges", func(s *corev1.Service) { ranges(s, 1001) }, 1, 0, none + "1001 loadBalancerSourceRanges are more than 1000: split the service"},
		{"as many source ranges of ports as there may be", func(s *corev1.Service) { ranges(s, 1000); ports(s, 50) }, 50, 1, ""},
		{"source ranges of ports", func(s *corev1.Service) { ranges(s, 1000); ports(s, 51) }, 51, 0,
			none + "1000 loadBalancerSourceRanges for each of 51 ports at 1 addresses are 51000, more than 50000: split the service"},
		{"ports", func(s *corev1.Service) { ports(s, 25001) }, 0, 0,
			"service default/web has none of its 25001 ports: at all its addresses they would be more than 50000 frontends: split the service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(objects.Web(tt.change))
			var problems []string
			for _, p := range s.Problems {
				problems = append(problems, p.Reason+": "+p.Message)
			}
			if tt.want != "" {
				tt.want = "TooManyWays: " + tt.want
			}
			if got := strings.Join(problems, "; "); got != tt.want || len(s.Ports) != tt.ports || len(s.Outside) != tt.outer {
				t.Errorf("%d ports, %d addresses: %s", len(s.Ports), len(s.Outside), got)
			}
		})
	}
}

// The cost of a Service with very many ports does not grow with the ports of its slices times its own, or with
// endpoints above its limits.
func BenchmarkManyPorts(b *testing.B) {
	const ports = 16000
	s := objects.Web(func(s *corev1.Service) {
		s.Spec.Ports = nil
		for i := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(1 + i)})
		}
	})
	var hosts []string
	for i := range MaxEndpoints {
		hosts = append(hosts, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
	}
	for _, endpoints := range []int{0, MaxEndpoints} {
		b.Run(fmt.Sprint("endpoints=", endpoints), func(b *testing.B) {
			es := objects.Slice("a", 8080, hosts[:endpoints]...)
			for i := range ports {
				name := fmt.Sprint("p", i)
				es.Ports = append(es.Ports, discoveryv1.EndpointPort{Name: &name, Port: es.Ports[0].Port})
			}
			for b.Loop() {
				resolve(s, es)
			}
		})
	}
}

// Hosts send to endpoints from their own addresses: packets to another host's tunnels through a Service would look
// like this host's tunnel packets.
// Elements and flows are made for source ranges of the family of an address.
func TestSourceRangesCountAtAddressesOfTheirFamily(t *testing.T) {
	s := New(objects.Web(func(s *corev1.Service) {
		objects.Dual(s)
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"203.0.113.9"}
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24", "10.0.0.0/8"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}, {IP: "2001:db8::9"}}
	}))
	if n := s.Outer(); n != 1+3+1 {
		t.Errorf("%d frontends outside, want 5", n)
	}
}

func TestNoServiceLeadsToTunnels(t *testing.T) {
	udp := corev1.ProtocolUDP
	s := objects.Web(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = udp })
	for port, want := range map[int32]int{6081: 0, 6082: 1} {
		from := objects.Slice("web-1", port, "10.0.0.3@node3")
		from.Ports[0].Protocol = &udp
		r := Resolve(New(s), []Slice{NewSlice(from, strings.Clone)})
		if len(r.Endpoints[0]) != want {
			t.Errorf("port %d has endpoints %v", port, r.Endpoints[0])
		}
		said := fmt.Sprint(r.Problems)
		if told := strings.Contains(said, "{BadEndpoint port 6081/UDP in endpoint slice web-1 of service default/web is that of tunnels"); told == (want > 0) {
			t.Errorf("port %d: %s", port, said)
		}
	}
}
