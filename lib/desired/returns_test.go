package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/replyroute"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// L5: 100 Services with Local policies over a DaemonSet share one router policy of each node, instead of having 100.
// An endpoint touches only the policy of its own node.
func TestServicesShareTheWayBack(t *testing.T) {
	const nodes, services = 50, 100
	w := manyNodes(t, nodes)
	for i := range services {
		w.Put(localService(fmt.Sprint("web-", i), i))
		for _, sl := range daemonSlices(fmt.Sprint("web-", i), nodes) {
			w.Put(sl)
		}
	}
	rows := 0
	for _, text := range texts(w) {
		rows += strings.Count(text, " priority=3000 ")
	}
	if rows != nodes {
		t.Errorf("%d router policies for %d nodes and %d Services", rows, nodes, services)
	}
	for _, u := range w.Put(draining(daemonSlices("web-3", nodes)[0], 0)) {
		if _, ok := replyroute.NodeOf(u); ok && u != replyroute.Unit("node-0") {
			t.Errorf("an endpoint on node-0 touches %s", u)
		}
	}
	for i := range services {
		if i > 0 && slices.Contains(w.Remove(localService(fmt.Sprint("web-", i-1), i-1)), replyroute.InsideUnit) {
			t.Fatalf("%d Services with a Local policy are left, but the exemption for traffic inside is touched", services-i)
		}
	}
	if touched := w.Remove(localService("web-99", 99)); !slices.Contains(touched, replyroute.InsideUnit) || len(rowsOf(t, w, replyroute.InsideUnit)) > 0 {
		t.Errorf("the last Service touches %v", touched)
	}
}

// portsOn returns a slice of a Service with some endpoints on a node, all with the same ports.
func portsOn(name string, ports, endpoints, node int) *discoveryv1.EndpointSlice {
	var addrs []string
	for i := range endpoints {
		addrs = append(addrs, fmt.Sprintf("10.0.%d.%d@node-%d", node, 3+i, node))
	}
	s := newSlice(fmt.Sprint(name, "-", node), name, addrs...)
	s.Ports = nil
	for i := range ports {
		port, tcp, number := fmt.Sprint("p", i), corev1.ProtocolTCP, int32(8000+i)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &port, Protocol: &tcp, Port: &number})
	}
	return s
}

// withPorts is a Service with Local policies and some ports, created at some time.
func withPorts(name string, number, ports, created int) *corev1.Service {
	s := localService(name, number)
	s.CreationTimestamp = metav1.Unix(int64(created), 0)
	s.Spec.Ports = nil
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(80 + i), NodePort: int32(30000 + 100*number + i)})
	}
	return s
}

// L3: the replies of Services with Local policies on a node are bounded. The younger Service above the limit takes no
// connections from outside there, and its Problem has the number and the limit. All others continue, and so does this
// one after the removal of an older one.
func TestTheWayBackIsBounded(t *testing.T) {
	w := manyNodes(t, 3)
	names := []string{"old", "young", "late"}
	for i, ports := range []int{5, 6, 1} { // of 100 endpoints each
		w.Put(withPorts(names[i], 1+i, ports, i))
		w.Put(portsOn(names[i], ports, 100, 1))
		w.Put(portsOn(names[i], ports, 2, 2))
	}
	w.Allocate()
	problem := func(name string) string {
		_, err := w.Rows(nb.Unit("service/default/" + name))
		return fmt.Sprint(err)
	}
	refused := "service default/young with policy Local takes no connections from outside on 1 nodes: on node node-1 its endpoints have 600 ports, more than older services leave of 1000 for namespace default and 2000 for all"
	if got := problem("young"); !strings.Contains(got, refused) {
		t.Errorf("young: %s", got)
	}
	for _, name := range []string{"old", "late"} {
		if got := problem(name); got != "<nil>" {
			t.Errorf("%s: %s", name, got)
		}
	}
	one, two := fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-1"))), fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-2")))
	if strings.Contains(one, "young") || !strings.Contains(one, "old") || !strings.Contains(two, "young") {
		t.Errorf("variables of node-1 %.300s, of node-2 %.300s", one, two)
	}
	touched := w.Remove(withPorts("old", 1, 5, 0))
	for _, u := range []nb.Unit{"service/default/young", "return/node-1", "chassis/chassis-1"} {
		if !slices.Contains(touched, u) {
			t.Errorf("the older one's removal does not touch %s", u)
		}
	}
	if got := problem("young"); got != "<nil>" || !strings.Contains(fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-1"))), "young") {
		t.Errorf("without the older one: %s", got)
	}
	for _, rows := range texts(w) {
		if len(rows) > 1<<20 {
			t.Errorf("rows of %d bytes", len(rows))
		}
	}
}

// L3: Services of a namespace take at most their part of the room on a node, and only by usable endpoints of the node's own
// pods. An older Service with a thousand others, which need no policies, took all of it from the Services of others.
func TestTheWayBackOfOthersIsFree(t *testing.T) {
	w := manyNodes(t, 3)
	put := func(namespace, name string, number, ports, created int, slices ...*discoveryv1.EndpointSlice) {
		s := withPorts(name, number, ports, created)
		s.Namespace = namespace
		w.Put(s)
		for _, sl := range slices {
			sl.Namespace, sl.Labels[discoveryv1.LabelServiceName] = namespace, name
			w.Put(sl)
		}
	}
	var outside []string
	for i := range 999 {
		outside = append(outside, fmt.Sprintf("10.200.%d.%d@node-1", i/250, 1+i%250))
	}
	unready, others, no := portsOn("", 3, 250, 1), portsOn("", 3, 0, 1), false
	for i := range unready.Endpoints {
		unready.Endpoints[i].Conditions.Ready = &no
	}
	others.Name, others.Endpoints = "others", newSlice("", "", outside...).Endpoints
	put("tenant", "bogus", 1, 3, 0, unready, others)
	put("tenant", "many", 2, 9, 1, portsOn("many", 9, 100, 1))
	put("tenant", "more", 3, 9, 2, portsOn("more", 9, 100, 1))
	put("default", "web", 4, 9, 3, portsOn("web", 9, 100, 1))
	w.Allocate()
	refused := func(want map[nb.Unit]bool) {
		t.Helper()
		for unit, refused := range want {
			if _, err := w.Rows(unit); strings.Contains(fmt.Sprint(err), "takes no connections from outside") != refused {
				t.Errorf("%s: %v", unit, err)
			}
		}
	}
	refused(map[nb.Unit]bool{"service/tenant/bogus": false, "service/tenant/many": false, "service/tenant/more": true, "service/default/web": false})
	if text := fmt.Sprint(rowsOf(t, w, replyroute.Unit("node-1"))); !strings.Contains(text, "10.0.1.3") || strings.Contains(text, "10.200.") {
		t.Errorf("return/node-1 %.300s", text)
	}
	moved, err := w.Facts().Cluster.WithNode("node-1", prefixes("10.200.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	touched := w.Put(moved)
	for _, u := range []nb.Unit{"service/tenant/bogus", "service/tenant/more", "return/node-1", "chassis/chassis-1"} {
		if !slices.Contains(touched, u) {
			t.Errorf("other subnets of node-1 do not touch %s", u)
		}
	}
	refused(map[nb.Unit]bool{"service/tenant/bogus": true, "service/tenant/many": false, "service/tenant/more": false, "service/default/web": false})
}

// L3: the choice of refused Services depends on the objects only, not on the order of events, and each affected unit
// is touched.
func TestRefusedRepliesDoNotDependOnOrder(t *testing.T) {
	walk := randomWalk{seeds: 4, steps: 120, stream: 5, refusal: "takes no connections from outside"}
	walk.check(t, func(r *rand.Rand, name string, number int) (*corev1.Service, *discoveryv1.EndpointSlice) {
		s, sl := withPorts(name, number, pick(r, 5, 9), r.IntN(3)), portsOn(name, 9, pick(r, 1, 80, 100), r.IntN(2))
		for i := range sl.Endpoints {
			if no := false; r.IntN(8) == 0 {
				sl.Endpoints[i].Conditions.Ready = &no
			}
		}
		if r.IntN(4) == 0 {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}
		return s, sl
	})
}

// Replies of a node leave through the gateway that shares its NIC, whatever the names of others on the host: hostPorts and flows
// rely on it, too.
func TestRepliesLeaveThroughTheSharedNIC(t *testing.T) {
	for _, shared := range []string{"a", "z"} {
		w, c := NewWorld(), cluster(t, 1).WithChassis("n1", "c1")
		for i, name := range []string{shared, "m"} {
			g := topology.Gateway{Mode: topology.Bridge, Interface: "breth0", Chassis: "c1", Node: "n1", MAC: "02:00:00:00:00:01", IPs: prefixes("192.0.2.1/24")}
			if i == 1 {
				g.Mode, g.Interface, g.IPs = topology.Physical, "eth1", prefixes("198.51.100.1/24")
			}
			var err error
			if c, err = c.WithGateway(name, g); err != nil {
				t.Fatal(err)
			}
		}
		w.Put(c)
		w.Put(hostNode(1))
		w.Put(localService("web", 1))
		w.Put(newSlice("web-1", "web", "10.0.1.11@n1"))
		rows := fmt.Sprint(rowsOf(t, w, replyroute.Unit("n1")))
		if hop := c.Gateways[shared].Join[0].String(); !strings.Contains(rows, fmt.Sprintf("nexthops=[%q]", hop)) {
			t.Errorf("%s shares the NIC and is at %s: %s", shared, hop, rows)
		}
	}
}
