package objects

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/kube"
)

// takeSlices records a Service web, and n slices of it with 100 endpoints each, as single events.
func takeSlices(o *Objects, n int) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, "172.30.0.9", []string{"172.30.0.9"}
	port, tcp, name := int32(80), corev1.ProtocolTCP, ""
	s.Spec.Ports = []corev1.ServicePort{{Protocol: tcp, Port: port}}
	o.takeService(kube.Event{Object: s})
	for i := range n {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}},
		}
		for e := range 100 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.7", i, e)}})
		}
		o.takeService(kube.Event{Object: slice})
	}
}

// L1: slices of a large Service that come as single events cost what there is to read, not its square.
func TestSlicesThatComeOneByOneAreResolvedOnce(t *testing.T) {
	cost := map[int]uint64{}
	for _, n := range []int{50, 200} {
		o := New(Parts{}, true)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		takeSlices(o, n)
		o.Resolve(nil)
		runtime.ReadMemStats(&after)
		cost[n] = after.TotalAlloc - before.TotalAlloc
		got := o.Services()
		if len(got) != 1 || got[0].Candidates != 100*n || len(o.touched) != 0 {
			t.Fatalf("%d slices: Services %+v", n, got)
		}
	}
	if cost[200] > 6*cost[50] {
		t.Errorf("50 slices allocate %d bytes, 200 slices %d", cost[50], cost[200])
	}
}

// Services are sorted, and one that does not change keeps its pointer: its rules are not made again.
func TestUnchangedServicesKeepTheirPointers(t *testing.T) {
	o := New(Parts{}, true)
	put := func(gone bool, name, ip string) []*service.Resolved {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip}
		s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
		o.takeService(kube.Event{Object: s, Gone: gone})
		o.Resolve(nil)
		return o.Services()
	}
	put(false, "b", "172.30.0.2")
	before := put(false, "a", "172.30.0.1")
	after := put(false, "b", "172.30.0.3")
	if len(before) != 2 || len(after) != 2 || before[0] != after[0] || before[1] == after[1] || after[0].Name != "a" || after[1].ClusterIPs[0].String() != "172.30.0.3" {
		t.Errorf("before %v, after %v", before, after)
	}
	if left := put(true, "a", "172.30.0.1"); len(left) != 1 || left[0] != after[1] {
		t.Errorf("left: %v", left)
	}
}

// Rules and frontends depend on the ServiceCIDRs, like the routes, and follow them at once.
func TestAServiceCIDRTouchesServices(t *testing.T) {
	o := New(Parts{Services: []string{"rules", "flows"}, Routes: "routes"}, true)
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"172.31.0.0/24"}}}
	for _, ev := range []kube.Event{{Replace: true, Objects: slices.Values([]any{})}, {Object: c}, {Object: c, Gone: true}} {
		if got := o.takeCIDRs(ev); !slices.Equal(got, []string{"routes", "rules", "flows"}) {
			t.Errorf("%+v touches %v", ev, got)
		}
	}
}

// A Service has no port of every node at the address of a host, whichever of the three is known last, and has it again
// after the NodePort is gone.
func TestPortsOfNodesAtAddressesOfHosts(t *testing.T) {
	for order := range 3 {
		o := New(Parts{}, true)
		door := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "door"}}
		door.Spec.Type, door.Spec.ClusterIP = corev1.ServiceTypeNodePort, "172.30.0.1"
		door.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}}
		web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		web.Spec.ClusterIP, web.Spec.ExternalIPs = "172.30.0.2", []string{"192.0.2.1"}
		web.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 30080}}
		steps := []func(){
			func() { o.takeService(kube.Event{Object: door}) },
			func() { o.takeService(kube.Event{Object: web}) },
			func() { o.SetHosts(ports.Hosts{netip.MustParseAddr("192.0.2.1")}, nil) },
		}
		for i := range steps {
			steps[(order+i)%3]()
			o.Resolve(nil)
		}
		if all := o.Services(); len(all) != 2 || len(all[1].Taken) != 1 {
			t.Errorf("order %d: %+v", order, all)
		}
		o.takeService(kube.Event{Object: door, Gone: true})
		o.Resolve(nil)
		if all := o.Services(); len(all) != 1 || len(all[0].Taken) != 0 {
			t.Errorf("order %d, without the NodePort: %+v", order, all)
		}
	}
}

// A label of this node changes its endpoints by hints; labels of other nodes do not.
func TestTheZoneOfThisNode(t *testing.T) {
	o := New(Parts{Services: []string{"nat"}}, true)
	o.Node = "n1"
	put := func(name, zone string) []string {
		return o.takeNodes(kube.Event{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}})
	}
	put("n1", "")
	put("n2", "west")
	if touched := put("n1", "east"); o.Zone != "east" || len(touched) != 1 {
		t.Errorf("zone %q, touched %v", o.Zone, touched)
	}
	if touched := put("n2", "north"); o.Zone != "east" || len(touched) != 0 {
		t.Errorf("another node's: zone %q, touched %v", o.Zone, touched)
	}
}

// Only the addresses of a host's own Node, of any type, are known besides InternalIPs, and not after the Node is gone.
func TestAddressesOfTheOwnNode(t *testing.T) {
	o := New(Parts{Services: []string{"nat"}, Routes: "routes"}, true)
	o.Node = "n1"
	node := func(name, external string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: external}}
		return n
	}
	for i, step := range []struct {
		event         kube.Event
		want, touched string
	}{
		{kube.Event{Object: node("n1", "203.0.113.1")}, "203.0.113.1", "routes nat"},
		{kube.Event{Object: node("n1", "203.0.113.1")}, "203.0.113.1", ""},
		{kube.Event{Object: node("n1", "203.0.113.5")}, "203.0.113.5", "nat"},
		{kube.Event{Object: node("N1", "203.0.113.3")}, "203.0.113.3", "routes nat"},
		{kube.Event{Object: node("n2", "203.0.113.2")}, "203.0.113.3", "routes nat"}, // a new node
		{kube.Event{Object: node("n2", "203.0.113.4")}, "203.0.113.3", ""},
		{kube.Event{Replace: true, Objects: slices.Values([]any{node("n2", "203.0.113.4")})}, "", "routes nat"},
	} {
		touched := o.takeNodes(step.event)
		var got string
		for _, a := range o.Reported {
			got += a.Address
		}
		if got != step.want || strings.Join(touched, " ") != step.touched {
			t.Errorf("step %d: %q, touched %v", i, got, touched)
		}
	}
}

// A node is about to leave while its Node is being deleted, has the taint of the cluster autoscaler, or is gone. Other Nodes
// do not matter.
func TestANodeThatLeaves(t *testing.T) {
	o := New(Parts{}, true)
	o.Node = "n1"
	node := func(name string, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(n)
		if err := kube.KindOf(n).Trim(n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	stays := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unschedulable"}} }
	tainted := func(n *corev1.Node) {
		stays(n)
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule})
	}
	deleted := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }
	for _, step := range []struct {
		event kube.Event
		want  bool
	}{
		{kube.Event{Object: node("n1", stays)}, false},
		{kube.Event{Object: node("n2", tainted)}, false},
		{kube.Event{Object: node("n1", tainted)}, true},
		{kube.Event{Object: node("n1", stays)}, false},
		{kube.Event{Object: node("n1", deleted)}, true},
		{kube.Event{Object: node("n1", stays)}, false},
		{kube.Event{Object: node("n2", stays), Gone: true}, false},
		{kube.Event{Object: node("n1", stays), Gone: true}, true},
		{nodes(node("n1", stays)), false},
		{nodes(node("n2", stays)), true},
		{nodes(node("n2", stays), node("n1", stays)), false},
	} {
		if o.takeNodes(step.event); o.Leaving != step.want {
			t.Errorf("%+v: leaving %v", step.event, o.Leaving)
		}
	}
}

// A host without a Node does not leave.
func TestAHostThatIsNoNodeStays(t *testing.T) {
	o := New(Parts{}, true)
	o.Node = "n1"
	other := nodeAt("n2", "192.0.2.2")
	for i, ev := range []kube.Event{nodes(), nodes(other), {Object: other, Gone: true}, nodes()} {
		if o.takeNodes(ev); o.Leaving {
			t.Errorf("after event %d it leaves", i)
		}
	}
}

// Addresses of hosts, also the first ones known, concern the Services with an external address there only.
func TestAddressesOfHostsConcernFewServices(t *testing.T) {
	o := New(Parts{}, true)
	for i, external := range []string{"192.0.2.1", "192.0.2.2", ""} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i)}}
		s.Spec.ClusterIP, s.Spec.Ports = fmt.Sprintf("172.30.0.%d", 1+i), []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
		if external != "" {
			s.Spec.ExternalIPs = []string{external}
		}
		o.takeService(kube.Event{Object: s})
	}
	o.Resolve(nil)
	before := o.Services()
	o.SetHosts(ports.Hosts{netip.MustParseAddr("192.0.2.1")}, nil)
	after := o.Services()
	if len(after) != 3 || before[0] == after[0] || before[1] != after[1] || before[2] != after[2] {
		t.Errorf("before %v, after %v", before, after)
	}
}
