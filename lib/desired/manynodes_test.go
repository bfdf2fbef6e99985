package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// manyNodes is a World of n nodes with a chassis and a gateway each.
func manyNodes(t testing.TB, n int) *World {
	t.Helper()
	c, err := topology.New("ovn_cluster_router", prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes, c.Chassis, c.Gateways = map[string][]netip.Prefix{}, map[string]string{}, map[string]topology.Gateway{}
	w := NewWorld()
	for i := range n {
		name := fmt.Sprint("node-", i)
		c.Nodes[name], c.Chassis[name] = prefixes(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)), fmt.Sprint("chassis-", i)
		c.Gateways[name] = topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: fmt.Sprint("chassis-", i), MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i/250, i%250),
			IPs: prefixes(fmt.Sprintf("198.%d.%d.9/24", 20+i/250, i%250)), Join: []netip.Addr{netip.AddrFrom4([4]byte{100, 64, byte(i / 250), byte(2 + i%250)})}, Node: name,
		}
	}
	w.Put(c)
	var nodes []any
	for i := range n {
		nodes = append(nodes, largeNode(i, 0))
	}
	w.Replace(&corev1.Node{}, slices.Values(nodes))
	return w
}

// daemonSlices are the slices of a DaemonSet on n nodes, 100 endpoints in each.
func daemonSlices(service string, n int) (out []*discoveryv1.EndpointSlice) {
	for from := 0; from < n; from += 100 {
		var endpoints []string
		for i := from; i < min(n, from+100); i++ {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.7@node-%d", i/250, i%250, i))
		}
		out = append(out, newSlice(fmt.Sprint(service, "-", from), service, endpoints...))
	}
	return out
}

func localService(name string, number int) *corev1.Service {
	s := newService(name, number)
	s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
	s.Spec.Ports[0].NodePort = int32(30000 + number)
	return s
}

// draining toggles the first endpoint of a slice.
func draining(s *discoveryv1.EndpointSlice, i int) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	yes, no := true, false
	if i%2 == 0 {
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	}
	return s
}

// allocated returns the number of bytes allocated by f, also those freed since: a measure of work without a clock.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// L4: an endpoint of a Service with a Local policy over a DaemonSet touches its own node's chassis, and costs no more
// than its Service has endpoints; all chassis together cost no more than there are endpoints.
func TestAnEndpointOfADaemonSetTouchesItsNode(t *testing.T) {
	event, resync := map[int]uint64{}, map[int]uint64{}
	for _, n := range []int{250, 1000} {
		w := manyNodes(t, n)
		w.Put(localService("web", 1))
		all := daemonSlices("web", n)
		for _, s := range all {
			w.Put(s)
		}
		i := 0
		for range 2 {
			touched := w.Put(draining(all[0], i))
			if want := []nb.Unit{"service/default/web", "chassis/chassis-0", "return/node-0"}; fmt.Sprint(touched) != fmt.Sprint(want) {
				t.Errorf("with %d nodes, an endpoint touches %d units: %.200v", n, len(touched), touched)
			}
			i++
		}
		event[n] = allocated(func() { w.Put(draining(all[0], i)) })
		resync[n] = allocated(func() {
			for id := range w.Facts().Chassis {
				_, _ = w.Services.hosts.rows(id)
			}
		})
		if rows := fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-7"))); !strings.Contains(rows, "10.0.7.7:8080") {
			t.Errorf("the variables of chassis-7 are %s", rows)
		}
	}
	t.Logf("bytes allocated by nodes: an event %v, all chassis %v", event, resync)
	if event[1000] > 6*event[250] || resync[1000] > 6*resync[250] {
		t.Errorf("bytes allocated grow faster than nodes: an event %v, all chassis %v", event, resync)
	}
}

// L4: a chassis with endpoints of many Local Services computes only the variables of the Service with a changed
// endpoint.
func TestAChassisComputesTheServiceThatChanged(t *testing.T) {
	cost := map[int]uint64{}
	for _, services := range []int{10, 100} {
		w := manyNodes(t, 5)
		slices := map[string]*discoveryv1.EndpointSlice{}
		for i := range services {
			name := fmt.Sprint("web-", i)
			w.Put(localService(name, i))
			slices[name] = daemonSlices(name, 5)[0]
			w.Put(slices[name])
		}
		before := fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-0")))
		w.Put(draining(slices["web-3"], 0))
		cost[services] = allocated(func() { _, _ = w.Services.hosts.rows("chassis-0") })
		one := draining(slices["web-3"], 1)
		one.Endpoints[0].Addresses = []string{"10.0.0.99"}
		w.Put(one)
		if now := fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-0"))); now != strings.Replace(before, `web_3.tcp.80.local4="10.0.0.7:8080"`, `web_3.tcp.80.local4="10.0.0.99:8080"`, 1) {
			t.Errorf("%d Services: the variables were %.400s, are %.400s", services, before, now)
		}
	}
	t.Logf("bytes allocated by Services: %v", cost)
	if each := (cost[100] - cost[10]) / 90; each > 500 { // the row has a variable of each Service
		t.Errorf("%d bytes are allocated for each Service that has not changed", each)
	}
}

// L3: a node computes only the ports in slices, not all of a Service: there may be thousands.
func TestANodeComputesTheListedPorts(t *testing.T) {
	const nodes, ports = 50, 3000
	w := manyNodes(t, nodes)
	s := localService("web", 1)
	http := s.Spec.Ports[0]
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(10_000 + i)})
	}
	w.Put(s)
	for _, sl := range daemonSlices("web", nodes) {
		w.Put(sl)
	}
	w.Allocate()
	rows := ""
	cost := allocated(func() { rows = fmt.Sprint(rowsOf(t, w, chassisUnit("chassis-7"))) })
	if !strings.Contains(rows, fmt.Sprintf(`web.tcp.%d.local4="10.0.7.7:8080"`, http.Port)) || cost > 50_000 {
		t.Errorf("%d bytes are allocated for %.300s", cost, rows)
	}
}

// L6: an endpoint event touches no pod with a hostPort, and a Service only the pods at its addresses.
func TestServicesTouchOnlyRivalHostPorts(t *testing.T) {
	const nodes = 200
	w := manyNodes(t, nodes)
	for i := range nodes {
		p := scalePod("default", i, "app", i)
		p.Spec.NodeName = fmt.Sprint("node-", i)
		w.Put(withHostPort(p, "", 80, corev1.ProtocolTCP))
	}
	w.Allocate()
	pods := func(units []nb.Unit) (n int) {
		for _, u := range units {
			if strings.HasPrefix(string(u), "pod/") {
				n++
			}
		}
		return n
	}
	s := newService("web", 1)
	if n := pods(w.Put(s)); n != 0 {
		t.Errorf("a Service with port 80 touches %d pods with hostPort 80", n)
	}
	for _, sl := range daemonSlices("web", nodes) {
		if n := pods(w.Put(sl)); n != 0 {
			t.Errorf("endpoints of a Service with port 80 touch %d pods with hostPort 80", n)
		}
	}
	s.Spec.ExternalIPs = []string{"192.100.0.8"} // of node-7
	if touched := w.Put(s); pods(touched) != 1 {
		t.Errorf("a Service at the address of node-7 touches %v", touched)
	}
	s.Spec.ExternalIPs, s.Spec.Ports[0].NodePort, s.Spec.Type = nil, 80, corev1.ServiceTypeNodePort
	if touched := w.Put(s); pods(touched) < nodes {
		t.Errorf("NodePort 80 touches %d of %d pods with hostPort 80", pods(touched), nodes)
	}
}

// L5: a change of one gateway in the record touches the gateway and its chassis, not the chassis of all nodes.
func TestARouterEventTouchesItsGateway(t *testing.T) {
	const nodes = 100
	w := manyNodes(t, nodes)
	w.Put(localService("web", 1))
	for _, s := range daemonSlices("web", nodes) {
		w.Put(s)
	}
	change := func(edit func(*topology.Gateway)) (units []string) {
		c := w.Facts().Cluster
		c.Gateways = maps.Clone(c.Gateways)
		g := c.Gateways["node-7"]
		edit(&g)
		c.Gateways["node-7"] = g
		for _, u := range w.Put(c) {
			units = append(units, string(u))
		}
		slices.Sort(units)
		return slices.Compact(units)
	}
	units := change(func(g *topology.Gateway) { g.MAC = "02:00:00:00:ff:01" })
	if want := []string{"gateway/node-7"}; !slices.Equal(units, want) {
		t.Errorf("another MAC touches %d units: %.300v; want %v", len(units), units, want)
	}
	units = change(func(g *topology.Gateway) { g.IPs = prefixes("198.51.100.9/24") })
	if len(units) > 10 || !slices.Contains(units, "chassis/chassis-7") || !slices.Contains(units, "gateway/node-7") {
		t.Errorf("another address touches %d units: %.300v; want the gateway, its chassis and few others", len(units), units)
	}
}
