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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/replyroute"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// newService is a Service with one port and one cluster address of each family.
func newService(name string, number int) *corev1.Service {
	ips := []string{fmt.Sprintf("172.16.%d.%d", number/256, number%256), fmt.Sprintf("fd02::%x", number)}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ips[0], ClusterIPs: ips,
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// newSlice is a slice of a Service with endpoints "ADDRESS@NODE".
func newSlice(name, service string, endpoints ...string) *discoveryv1.EndpointSlice {
	tcp, none, port := corev1.ProtocolTCP, "", int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &none, Protocol: &tcp, Port: &port}},
	}
	for _, e := range endpoints {
		addr, node, _ := strings.Cut(e, "@")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &node})
		if strings.Contains(addr, ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
	}
	return s
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomService is a Service of any kind. It uses few numbers, for conflicts.
func randomService(r *rand.Rand) *corev1.Service {
	n := r.IntN(5)
	s := newService(pick(r, "kubernetes", "s0", "s1", "s2", "s3"), n)
	s.Spec.Ports[0].Port = pick[int32](r, 80, 80, 22, 8080)
	s.CreationTimestamp = metav1.Unix(int64(r.IntN(3)), 0)
	local := corev1.ServiceInternalTrafficPolicyLocal
	if r.IntN(3) == 0 {
		s.Spec.InternalTrafficPolicy = &local
	}
	if s.Spec.Type = pick(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer); s.Spec.Type != corev1.ServiceTypeClusterIP {
		s.Spec.Ports[0].NodePort = int32(30000 + r.IntN(3))
		s.Spec.ExternalTrafficPolicy = pick(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: pick(r, "198.51.100.1", "198.18.0.98", "2001:db8::1", "10.0.0.9")}}
		s.Spec.LoadBalancerSourceRanges = pick(r, nil, []string{"10.0.0.0/8", "fd00::/16"}, []string{"192.0.2.0/24"})
	}
	s.Spec.SessionAffinity = pick(r, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	s.Spec.ExternalIPs = pick(r, nil, []string{"203.0.113.1"}, []string{"203.0.113.1", "127.0.0.1"}, []string{"172.16.0.1"}, []string{"192.0.2.1"}, []string{"192.0.2.11"}, []string{"198.18.0.1"},
		[]string{"198.18.0.99"}, []string{"192.0.2.98", "198.18.0.97", "198.18.0.98"})
	switch r.IntN(16) {
	case 0, 1:
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
	case 2: // a node's address
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "192.0.2.1", []string{"192.0.2.1"}
	}
	return s
}

func randomSlice(r *rand.Rand) *discoveryv1.EndpointSlice {
	var endpoints []string
	v6 := r.IntN(3) == 0
	for range r.IntN(4) {
		n, i := r.IntN(4), 3+r.IntN(3)
		if v6 {
			endpoints = append(endpoints, fmt.Sprintf("fd00:0:0:%d::%x@n%d", n, i, n))
		} else {
			endpoints = append(endpoints, fmt.Sprintf("10.0.%d.%d@n%d", n, 8+i, n))
		}
	}
	of := pick(r, "kubernetes", "s0", "s1", "s2", "s3")
	if of == "kubernetes" {
		endpoints = append(endpoints[:0], "192.0.2.1@n1")
	}
	s := newSlice(fmt.Sprint("slice", r.IntN(6)), of, endpoints...)
	hints := r.IntN(3)
	for i := range s.Endpoints {
		switch yes, no := true, false; r.IntN(5) {
		case 0:
			s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		case 1:
			s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: &no}
		}
		if hints == 0 {
			s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprint("z", r.IntN(2))}}}
		}
	}
	return s
}

// randomServiceChange changes inputs of Services.
func randomServiceChange(t *testing.T, r *rand.Rand, w *World) (string, []nb.Unit) {
	switch r.IntN(13) {
	case 12:
		node := fmt.Sprint("n", r.IntN(4))
		if w.Facts().Cluster.Nodes[node] == nil {
			return "nothing", nil
		}
		return "other subnets of " + node, w.Put(withOtherSubnets(t, w.Facts().Cluster, node))
	case 11:
		c := serviceCIDR(fmt.Sprint("cidr", r.IntN(2)), pick(r, "172.16.0.0/24", "10.0.0.0/9", "fd02::/112"))
		if r.IntN(2) == 0 {
			return "remove " + c.Name, w.Remove(c)
		}
		return fmt.Sprint("ServiceCIDR ", c.Name, c.Spec.CIDRs), w.Put(c)
	case 10:
		c := randomHosts(t, r)
		return fmt.Sprint("topology ", c), w.Put(c)
	case 0:
		s := randomService(r)
		return "remove service " + s.Name, w.Remove(s)
	case 1:
		s := randomSlice(r)
		return "remove slice " + s.Name, w.Remove(s)
	case 2:
		var all []any
		for range r.IntN(4) {
			all = append(all, randomService(r))
		}
		return fmt.Sprint("replace services by ", len(all)), w.Replace(&corev1.Service{}, slices.Values(all))
	case 3:
		var all []any
		for range r.IntN(4) {
			all = append(all, randomSlice(r))
		}
		return fmt.Sprint("replace slices by ", len(all)), w.Replace(&discoveryv1.EndpointSlice{}, slices.Values(all))
	case 4:
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", r.IntN(4)), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("z", r.IntN(2))}}}
		for i := range r.IntN(3) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", i)})
		}
		return "node " + n.Name, w.Put(n)
	case 5, 6, 7:
		s := randomSlice(r)
		return fmt.Sprint("slice ", s), w.Put(s)
	}
	s := randomService(r)
	return fmt.Sprint("service ", s), w.Put(s)
}

// randomHosts is a topology with the hosts of some nodes, and some gateways.
func randomHosts(t *testing.T, r *rand.Rand) topology.Cluster {
	t.Helper()
	c := cluster(t, 0, 1, 2)
	for n := range 3 {
		if r.IntN(3) > 0 {
			c = c.WithChassis(fmt.Sprint("n", n), fmt.Sprint("chassis-", n))
		}
		if r.IntN(2) > 0 {
			var err error
			g := topology.Gateway{
				Mode: pick(r, topology.Physical, topology.Local), Interface: "eth1", Chassis: fmt.Sprint("chassis-", n),
				MAC: fmt.Sprint("02:00:00:00:00:0", n), IPs: prefixes(fmt.Sprintf("192.0.2.%d/24", 10+n)),
			}
			if c, err = c.WithGateway(fmt.Sprint("g", n), g); err != nil {
				t.Fatal(err)
			}
			c = c.WithNodeOnChassis(fmt.Sprint("n", n), fmt.Sprint("chassis-", n))
		}
	}
	return c
}

// withOtherSubnets is a topology with alternating subnets of a node.
func withOtherSubnets(t *testing.T, c topology.Cluster, node string) topology.Cluster {
	t.Helper()
	n := strings.TrimPrefix(node, "n")
	others := prefixes("10.0."+n+".128/29", "fd00:0:0:"+n+"0::/64")
	if slices.Equal(c.Nodes[node], others) {
		others = prefixes("10.0."+n+".8/29", "fd00:0:0:"+n+"::/64")
	}
	c, err := c.WithNode(node, others)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A new Service, or endpoint, changes as many rows in a cluster of 100 nodes as in one of one. The cost of a new node
// does not grow with the Services.
func TestRowsDoNotDependOnTheNumberOfNodes(t *testing.T) {
	const services, endpoints, nodes = 1000, 10, 100
	w := NewWorld()
	var all []int
	for n := range nodes {
		all = append(all, n)
	}
	c := cluster(t, all...)
	for _, n := range all {
		c = c.WithChassis(fmt.Sprint("n", n), fmt.Sprint("chassis-", n))
	}
	w.Put(c)
	for _, n := range all {
		w.Put(hostNode(n))
	}
	for i := range services {
		name := fmt.Sprint("s", i)
		s := newService(name, i)
		s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, int32(30000+i)
		w.Put(s)
		w.Put(newSlice(name, name, tenEndpoints(i, endpoints)...))
	}
	before := texts(w)
	balancers := 0
	for _, rows := range before {
		balancers += strings.Count(rows, nbdb.LoadBalancerTable+" ")
	}
	if balancers > 2*services {
		t.Errorf("%d load balancers for %d services", balancers, services)
	}
	t.Logf("%d load balancers for %d services × %d endpoints on %d nodes", balancers, services, endpoints, nodes)

	touched := w.Put(newSlice("s7", "s7", tenEndpoints(7, endpoints-1)...))
	if changed := differing(before, texts(w)); changed > 2 || len(touched) > 2 {
		t.Errorf("one endpoint less changes %d rows and touches %v", changed, touched)
	}
	before = texts(w)
	more := c
	var err error
	if more, err = more.WithNode("n200", prefixes("10.0.200.8/29", "fd00:0:0:200::/64")); err != nil {
		t.Fatal(err)
	}
	touched = append(w.Put(more.WithChassis("n200", "chassis-200")), w.Put(hostNode(200))...)
	after := texts(w)
	serviceRows := 0
	for u, rows := range after {
		if strings.HasPrefix(string(u), "service/") && rows != before[u] {
			serviceRows++
		}
	}
	if serviceRows > 0 || len(touched) > 10 {
		t.Errorf("a new node changes %d services and touches %v", serviceRows, touched)
	}
}

// A connection through a gateway of policy Local goes to an endpoint on the gateway's node, and the reply goes back
// by this gateway. Endpoints outside their node's subnets have no route for replies: users with write access to
// slices could name any node.
func TestOtherSubnetsOfANodeTouchItsReplies(t *testing.T) {
	w := NewWorld()
	c := withGateways(t, cluster(t, 1, 2), 1, 2)
	w.Put(c)
	for i := range 2 {
		s := newService(fmt.Sprint("s", i+1), i+1)
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal, int32(30000+i)
		w.Put(s)
		w.Put(newSlice(s.Name, s.Name, fmt.Sprintf("10.0.%d.11@n%d", i+1, i+1)))
	}
	leads := func(node string) bool {
		return strings.Contains(texts(w)[replyroute.Unit(node)], "reroute")
	}
	if !leads("n1") || !leads("n2") {
		t.Fatal("answers are led nowhere")
	}
	touched := w.Put(withOtherSubnets(t, c, "n1"))
	if leads("n1") || !leads("n2") {
		t.Errorf("answers of other addresses than the node's pods have are led somewhere: %t, %t", leads("n1"), leads("n2"))
	}
	if !slices.Contains(touched, replyroute.Unit("n1")) || slices.Contains(touched, replyroute.Unit("n2")) {
		t.Errorf("other subnets of n1 touch %v", touched)
	}
}

// Each name of a node or zone is kept once, and only as long as it is used.
func TestNamesOfNodesThatAreGoneAreForgotten(t *testing.T) {
	w := NewWorld()
	w.Put(newService("web", 1))
	for i := range 100 {
		w.Put(newSlice("web-1", "web", fmt.Sprintf("10.0.1.3@gone-%d", i), "10.0.1.4@n1"))
	}
	w.Compact()
	if n := len(w.Services.shared.copies); n != 2 {
		t.Errorf("%d names are kept: %v", n, w.Services.shared.copies)
	}
	if rows := texts(w)["service/default/web"]; !strings.Contains(rows, "10.0.1.3:8080,10.0.1.4:8080") {
		t.Error(rows)
	}
}

func hostNode(n int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", n)}}},
	}
}

func tenEndpoints(seed, n int) (out []string) {
	for i := range n {
		node := (seed + i) % 100
		out = append(out, fmt.Sprintf("10.0.%d.11@n%d", node, node))
	}
	return out
}

func texts(w *World) map[nb.Unit]string { return state(w, nil) }

// differing counts the units with different rows.
func differing(a, b map[nb.Unit]string) int {
	n := 0
	for u, rows := range b {
		if rows != a[u] {
			n++
		}
	}
	return n
}

func TestTwoServicesWantTheSame(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	young, old := newService("a-young", 1), newService("old", 2)
	young.CreationTimestamp, old.CreationTimestamp = metav1.Unix(2, 0), metav1.Unix(1, 0)
	young.Spec.ExternalIPs, old.Spec.ExternalIPs = []string{"203.0.113.9"}, []string{"203.0.113.9"}
	w.Put(young)
	if _, err := w.Rows("service/default/a-young"); err != nil {
		t.Fatal(err)
	}
	if touched := w.Put(old); !slices.Contains(touched, nb.Unit("service/default/a-young")) {
		t.Errorf("the older Service touches only %v", touched)
	}
	rows, err := w.Rows("service/default/a-young")
	want := "203.0.113.9:80/TCP of service default/a-young is in use by service default/old: choose another one"
	if err == nil || err.Error() != want || strings.Contains(fmt.Sprint(rows), "203.0.113.9") || !strings.Contains(fmt.Sprint(rows), "172.16.0.1:80") {
		t.Errorf("got %v, %v; want %s", rows, err, want)
	}
	if touched := w.Remove(old); !slices.Contains(touched, nb.Unit("service/default/a-young")) {
		t.Errorf("the older one's end touches only %v", touched)
	}
	if rows, err := w.Rows("service/default/a-young"); err != nil || !strings.Contains(fmt.Sprint(rows), "203.0.113.9:80") {
		t.Errorf("got %v, %v", rows, err)
	}
}

// In a cluster without external IPs, they are not programmed, and take nothing from other Services: not even from a load
// balancer's address of the same Service.
func TestAClusterWithoutExternalIPs(t *testing.T) {
	w := NewWorld()
	w.Put(service.ExternalIPs(false))
	w.Put(cluster(t, 1))
	old, young := newService("old", 1), newService("young", 2)
	old.CreationTimestamp, young.CreationTimestamp = metav1.Unix(1, 0), metav1.Unix(2, 0)
	old.Spec.ExternalIPs = []string{"203.0.113.9", "203.0.113.10"}
	for _, s := range []*corev1.Service{old, young} {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	old.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
	young.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
	w.Put(old)
	w.Put(young)
	rows, err := w.Rows("service/default/old")
	want := `service default/old has 2 addresses in spec.externalIPs, the first is "203.0.113.9": this cluster serves none (setting external-ips); remove them, and let a load balancer give the service an address`
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if text := fmt.Sprint(rows); strings.Contains(text, "203.0.113.9:") || !strings.Contains(text, "203.0.113.10:80=") {
		t.Errorf("rows of old: %s", text)
	}
	if rows, err := w.Rows("service/default/young"); err != nil || !strings.Contains(fmt.Sprint(rows), "203.0.113.9:80=") {
		t.Errorf("rows of young: %v, %v", rows, err)
	}
}

// Users choose external addresses freely. These must not redirect packets of pods to other destinations
// (CVE-2020-8554).
func TestNobodyTakesWhatIsOthers(t *testing.T) {
	w := NewWorld()
	w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16")))
	c, err := cluster(t, 0, 1).WithGateway("gw", topology.Gateway{
		Mode: topology.Physical, Interface: "eth1", Chassis: "chassis", MAC: "02:00:00:00:00:01",
		IPs: prefixes("172.18.0.9/24"), NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Put(c)
	w.Put(hostNode(0))
	w.Put(newService("victim", 1))
	api := newService("kubernetes", 2)
	api.Spec.Ports[0].Port = 443
	door := newService("door", 4)
	door.Spec.Type, door.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	door.Spec.Ports[0].NodePort, door.Spec.HealthCheckNodePort = 30080, 32000
	for _, order := range [][]any{{"thief", "others"}, {"others", "thief"}} {
		for _, tt := range []struct {
			name, address string
			port          int32
			protocol      corev1.Protocol
			want          string // "": the Service has the address
		}{
			{"a Service's", "172.16.0.1", 80, "TCP", "172.16.0.1:80/TCP of service default/thief is in use by service default/victim: choose another one"},
			{"another port of it", "172.16.0.1", 81, "TCP", "172.16.0.1:81/TCP of service default/thief is in use by service default/victim: choose another one"},
			{"of no range that is known", "fd02::1", 53, "UDP", "[fd02::1]:53/UDP of service default/thief is in use by service default/victim: choose another one"},
			{"a future Service's", "172.16.7.7", 80, "TCP", "address 172.16.7.7 of service default/thief lies in the subnet of services 172.16.0.0/16: give one from outside the cluster"},
			{"the API server's", "192.0.2.7", 6443, "TCP", "192.0.2.7:6443/TCP of service default/thief is in use by service default/kubernetes: choose another one"},
			{"its other ports", "192.0.2.7", 8443, "TCP", ""},
			{"a pod's", "10.0.1.11", 80, "TCP", "address 10.0.1.11 of service default/thief lies in the cluster subnet 10.0.0.0/16: give one from outside the cluster"},
			{"a router's", "100.64.0.1", 80, "TCP", "address 100.64.0.1 of service default/thief lies in the cluster subnet 100.64.0.0/16: give one from outside the cluster"},
			{"a host's tunnels", "192.0.2.0", 6081, "UDP", "address 192.0.2.0 of service default/thief is that of a host, which needs port 6081/UDP itself: choose another one"},
			{"a host's ssh", "192.0.2.0", 22, "TCP", "address 192.0.2.0 of service default/thief is that of a host, which needs port 22/TCP itself: choose another one"},
			{"a host's kubelet", "192.0.2.0", 10250, "TCP", "address 192.0.2.0 of service default/thief is that of a host, which needs port 10250/TCP itself: choose another one"},
			{"the router's outside", "172.18.0.1", 53, "UDP", "address 172.18.0.1 of service default/thief is that of the router outside to which gateways send: choose another one"},
			{"a host's NodePort", "192.0.2.0", 30080, "TCP", "address 192.0.2.0 of service default/thief is that of a host, where port 30080/TCP is that of service default/door: choose another one"},
			{"a host's health checks", "192.0.2.0", 32000, "TCP", "address 192.0.2.0 of service default/thief is that of a host, where port 32000/TCP is that of service default/door: choose another one"},
			{"a NodePort's number elsewhere", "192.0.2.7", 30080, "TCP", ""},
			{"a host's NodePort by another protocol", "192.0.2.0", 30080, "UDP", ""},
			{"a host's other ports", "192.0.2.0", 80, "TCP", ""},
			{"metadata", "169.254.169.254", 80, "TCP", "externalIP 169.254.169.254 of service default/thief is a link-local address: give a unicast address that can be routed"},
		} {
			t.Run(fmt.Sprint(tt.name, " ", order), func(t *testing.T) {
				thief := newService("thief", 3)
				thief.Spec.ExternalIPs, thief.Spec.Ports[0].Port, thief.Spec.Ports[0].Protocol = []string{tt.address}, tt.port, tt.protocol
				slice := newSlice("api", "kubernetes", "192.0.2.7")
				*slice.Ports[0].Port = 6443
				for _, who := range order {
					if who == "thief" {
						w.Put(thief)
					} else {
						w.Put(api)
						w.Put(slice)
						w.Put(door)
					}
				}
				rows, err := w.Rows("service/default/thief")
				if got := fmt.Sprint(err); tt.want != "" && got != tt.want || tt.want == "" && err != nil {
					t.Errorf("got %v; want %s", got, tt.want)
				}
				if had := strings.Contains(fmt.Sprint(rows), netip.AddrPortFrom(netip.MustParseAddr(tt.address), uint16(tt.port)).String()+"="); had != (tt.want == "") {
					t.Errorf("rows %v", rows)
				}
				touched := w.Remove(door)
				if strings.Contains(tt.want, "door") && !slices.Contains(touched, nb.Unit("service/default/thief")) {
					t.Errorf("the end of what it is refused for touches only %v", touched)
				}
				for _, o := range []any{thief, api, slice} {
					w.Remove(o)
				}
			})
		}
	}
}

// L3: a Service with affinity at NodePorts names no host.
func TestANewNodeTouchesNoServiceWithAffinity(t *testing.T) {
	w := NewWorld()
	c := cluster(t, 0, 1)
	w.Put(c.WithChassis("n0", "chassis-0").WithChassis("n1", "chassis-1"))
	s := newService("s1", 1)
	s.Spec.Type, s.Spec.Ports[0].NodePort, s.Spec.SessionAffinity = corev1.ServiceTypeNodePort, 30001, corev1.ServiceAffinityClientIP
	w.Put(s)
	w.Put(hostNode(0))
	if touched := w.Put(hostNode(1)); slices.Contains(touched, nb.Unit("service/default/s1")) {
		t.Errorf("a new node touches %v", touched)
	}
}
