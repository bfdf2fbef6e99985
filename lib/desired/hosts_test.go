package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// sayer is a Node with addresses reported by its kubelet.
func sayer(name string, created int64, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// A kubelet writes its own Node's addresses, and packets of pods to them go to its host. So it does not get another
// node's address by reporting it.
func TestANodeDoesNotGetAnothersAddress(t *testing.T) {
	w := NewWorld()
	w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16")))
	w.Put(cluster(t, 0, 1))
	leads := func(node string) string {
		t.Helper()
		rows, err := w.Rows(nb.Unit("host/" + node))
		return fmt.Sprint(rows, err)
	}
	const to = "ip_prefix=192.0.2.1 "
	for _, bad := range []struct{ address, why string }{
		{"192.0.2.1", "is that of node n1"},
		{"10.0.1.11", "lies in 10.0.0.0/16, which is for pods or services"},
		{"100.64.0.2", "lies in 100.64.0.0/16, which is for pods or services"},
		{"172.16.0.1", "lies in 172.16.0.0/16, which is for pods or services"},
		{"127.0.0.1", "is none that others can send to"},
	} {
		for _, n := range []*corev1.Node{sayer("n0", 2, "192.0.2.9", bad.address), sayer("n1", 1, "192.0.2.1")} {
			w.Put(n)
		}
		want := fmt.Sprintf("address %s of node n0 %s: pods do not reach the node there", bad.address, bad.why)
		if got := leads("n0"); !strings.Contains(got, want) || strings.Contains(got, "ip_prefix="+bad.address) || !strings.Contains(got, "192.0.2.9") {
			t.Errorf("%s\nwant %s", got, want)
		}
		if got := leads("n1"); !strings.Contains(got, to) && !strings.Contains(got, `"192.0.2.1"`) {
			t.Errorf("the older node has lost its address: %s", got)
		}
		for _, n := range []string{"n0", "n1"} {
			w.Remove(sayer(n, 0))
		}
	}
	// When the other is gone, the address is free.
	w.Put(sayer("n1", 1, "192.0.2.1"))
	w.Put(sayer("n0", 2, "192.0.2.1"))
	if touched := w.Remove(sayer("n1", 0)); !slices.Contains(touched, nb.Unit("host/n0")) {
		t.Errorf("touched %v", touched)
	}
	if got := leads("n0"); !strings.Contains(got, "192.0.2.1") || strings.Contains(got, "is that of") {
		t.Error(got)
	}
}

// P5: a node that reports an address of pods or of the join switch gets it nowhere: as a hostPort on all switches, as a NodePort, or in
// spite of policies. Whether an address is one may turn out later.
func TestANodeGetsNoAddressOfPods(t *testing.T) {
	for _, bad := range []string{"10.0.1.13", "100.64.0.2", "fd00:0:0:1::d"} {
		narrow, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/24", "fd00::/64"), prefixes("100.65.0.0/16", "fd98::/64"))
		if err != nil {
			t.Fatal(err)
		}
		narrow, _ = narrow.WithNode("n0", prefixes("10.0.0.8/29", "fd00::/64"))
		narrow = narrow.WithChassis("n0", "c0")
		wide := cluster(t, 0).WithChassis("n0", "c0")
		for name, clusters := range map[string][]topology.Cluster{"known": {wide}, "enlarged": {narrow, wide}, "shrunk": {wide, narrow}} {
			w := NewWorld()
			w.Put(clusters[0])
			w.Put(sayer("n0", 1, "192.0.2.9", bad))
			w.Put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "closed"}})
			w.Put(withHostPort(newPod("web", "n0"), "", 5432, corev1.ProtocolTCP))
			w.Allocate()
			before, touched := texts(w), []nb.Unit{}
			for _, c := range clusters[1:] {
				touched = append(touched, w.Put(c)...)
			}
			after := texts(w)
			for _, u := range []nb.Unit{"pod/default/web", chassisUnit("c0"), policy.NodeUnit("n0")} {
				if !strings.Contains(after[u], "192.0.2.9") || strings.Contains(after[u], bad) != (name == "shrunk") {
					t.Errorf("%s: %s has %s", name, u, after[u])
				}
				if after[u] != before[u] && !slices.Contains(touched, u) {
					t.Errorf("%s: %s changed and was not reported", name, u)
				}
			}
			if why := "is for pods or services"; strings.Contains(after["host/n0"], why) == (name == "shrunk") {
				t.Errorf("%s: the Event is %s", name, after["host/n0"])
			}
		}
	}
}

// P5: a kubelet does not get an address of the control plane, of a gateway or of another host by reporting it.
func TestANodeDoesNotGetAReservedAddress(t *testing.T) {
	const bad = "192.0.2.1"
	address := netip.MustParseAddr(bad)
	gateway := topology.Gateway{
		Mode: topology.Physical, Interface: "eth1", Chassis: "c1", MAC: "02:00:00:00:00:01",
		IPs: prefixes("192.0.2.8/24"), NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.254")},
	}
	setup := func() *World {
		w := NewWorld()
		c := cluster(t, 0, 1).WithChassis("n0", "c0").WithChassis("n1", "c1")
		c, err := c.WithGateway("gw", gateway)
		if err != nil {
			t.Fatal(err)
		}
		w.Put(c.WithNodeOnChassis("n1", "c1"))
		return w
	}
	tunnels := facts.Tunnels{"c0": {netip.MustParseAddr("192.0.2.10")}, "c1": {netip.MustParseAddr("192.0.2.11")}}
	labelled := sayer("n0", 1, bad)
	labelled.Labels = map[string]string{names.LabelControlPlane: ""}
	const unproven = ": if the node is that host, label it node-role.kubernetes.io/control-plane="
	for _, tt := range []struct {
		name, address, why string
		puts               []any
	}{
		{"the API server's, in the configuration", bad, "is the address of k8s-api-server" + unproven, []any{facts.Protected{address: "the address of k8s-api-server"}, tunnels, sayer("n0", 1, bad)}},
		{"the API server's endpoint", bad, "is an address of the API server" + unproven, []any{tunnels, sayer("n0", 1, bad), apiService(), apiEndpoints(bad)}},
		{"a next hop's", "192.0.2.254", "is the next hop of gateway gw", []any{sayer("n0", 1, "192.0.2.254")}},
		{"a gateway's on another host", "192.0.2.8", "is the address of gateway gw", []any{sayer("n0", 1, "192.0.2.8")}},
		{"another host's tunnel", "192.0.2.11", "is the tunnel address of node n1", []any{tunnels, sayer("n0", 1, "192.0.2.11")}},
		{"labelled", bad, "", []any{facts.Protected{address: "the address of k8s-api-server"}, tunnels, labelled}},
		{"its own tunnel address", "192.0.2.10", "", []any{facts.Protected{netip.MustParseAddr("192.0.2.10"): "the address of ovn-nb"}, tunnels, sayer("n0", 1, "192.0.2.10")}},
		{"no Southbound database to ask", bad, "", []any{facts.Protected{address: "the address of k8s-api-server"}, sayer("n0", 1, bad)}},
	} {
		for _, reversed := range []bool{false, true} {
			w := setup()
			if reversed { // the order of reports makes no difference
				slices.Reverse(tt.puts)
			}
			before := state(w, nil)
			var touched []nb.Unit
			for _, o := range tt.puts {
				touched = append(touched, w.Put(o)...)
			}
			after := state(w, nil)
			got := after["host/n0"]
			if tt.why == "" != strings.Contains(got, "ip_prefix:"+tt.address) && tt.why == "" != strings.Contains(got, tt.address+" ") || tt.why != "" && !strings.Contains(got, tt.why+": pods do not reach") {
				t.Errorf("%s: %s\nwant %s", tt.name, got, tt.why)
			}
			if len(w.Facts().Addresses["n0"]) == 1 != (tt.why == "") {
				t.Errorf("%s: the node has %v", tt.name, w.Facts().Addresses["n0"])
			}
			for u, rows := range after {
				if rows != before[u] && before[u] != "" && !slices.Contains(touched, u) {
					t.Errorf("%s: %s changed and was not reported", tt.name, u)
				}
			}
		}
	}
	// The node with the right to an address gets it, even if an older node reports it.
	w := setup()
	w.Put(facts.Protected{address: "the address of k8s-api-server"})
	w.Put(tunnels)
	w.Put(sayer("n1", 0, bad))
	w.Put(labelled)
	if len(w.Facts().Addresses["n1"]) != 0 || len(w.Facts().Addresses["n0"]) != 1 {
		t.Errorf("the impostor has %v, the API server's host %v", w.Facts().Addresses["n1"], w.Facts().Addresses["n0"])
	}
}

// P5: a claim to a gateway suffices for the credential of a kubelet, and gives no address of another host: as the gateway's, or
// as its next hop.
func TestAGatewayTakesNoReservedAddress(t *testing.T) {
	const its = "192.0.2.1"
	address := netip.MustParseAddr(its)
	labelled := sayer("n0", 1, its)
	labelled.Labels = map[string]string{names.LabelControlPlane: ""}
	elsewhere := facts.Tunnels{"c0": {netip.MustParseAddr("192.0.2.10")}, "c1": {netip.MustParseAddr("192.0.2.11")}}
	for name, puts := range map[string][]any{
		"the API server's":  {facts.Protected{address: "the address of k8s-api-server"}, elsewhere, labelled},
		"its endpoint":      {apiService(), apiEndpoints(its), elsewhere, labelled},
		"another tunnel's":  {facts.Tunnels{"c0": {address}, "c1": {netip.MustParseAddr("192.0.2.11")}}, sayer("n0", 1, its)},
		"another gateway's": {sayer("n0", 1, its)},
	} {
		for _, edit := range []func(*topology.Gateway){
			func(g *topology.Gateway) { g.IPs = prefixes(its + "/24") },
			func(g *topology.Gateway) { g.IPs, g.NextHops = prefixes("192.0.2.11/32"), []netip.Addr{address} },
		} {
			w, c := NewWorld(), cluster(t, 0, 1).WithChassis("n0", "c0").WithChassis("n1", "c1")
			g := topology.Gateway{Mode: topology.Bridge, Interface: "breth0", Chassis: "c1", Node: "n1", MAC: "02:00:00:00:00:01"}
			edit(&g)
			if name == "another gateway's" {
				if g.IPs[0].Addr() == address {
					continue // see topology.Cluster.WithGateway
				}
				own := topology.Gateway{Mode: topology.Bridge, Interface: "breth0", Chassis: "c0", Node: "n0", MAC: "02:00:00:00:00:02", IPs: prefixes(its + "/24")}
				c, _ = c.WithGateway("n0", own)
			}
			c, err := c.WithGateway("n1", g)
			if err != nil {
				t.Fatal(err)
			}
			w.Put(c)
			for _, o := range append(puts, sayer("n1", 0, "192.0.2.11", its)) { // which is older
				w.Put(o)
			}
			if first, stolen := w.Facts().Addresses["n0"], w.Facts().Addresses["n1"]; !slices.Contains(first, address) || slices.Contains(stolen, address) {
				t.Errorf("%s: its host has %v, the other one %v with gateway %v by %v", name, first, stolen, g.IPs, g.NextHops)
			}
		}
	}
}

// P5: the credential of a kubelet suffices to report an address and to claim it as a next hop. Neither takes it from an older
// Node, in any order of events, and a proof is better than age. So hosts may be routers of others.
func TestNextHopsAndReports(t *testing.T) {
	const hop = "192.0.2.254"
	address := netip.MustParseAddr(hop)
	gateway := func(chassis string) (topology.Cluster, error) {
		c := cluster(t, 0, 1).WithChassis("n0", "c0").WithChassis("n1", "c1")
		c.NumberedBy = names.Ovnkube
		return c.WithGateway("gw", topology.Gateway{
			Mode: topology.Bridge, Interface: "breth0", Chassis: chassis, MAC: "02:00:00:00:00:01", IPs: prefixes("192.0.2.8/24"), NextHops: []netip.Addr{address},
		})
	}
	labelled := sayer("n0", 3, hop)
	labelled.Labels = map[string]string{names.LabelControlPlane: ""}
	for _, tt := range []struct {
		name, chassis string
		administrator bool
		puts          []any
		has           bool
	}{
		{"an older Node's", "c1", false, []any{sayer("n1", 2, "192.0.2.8"), sayer("n0", 1, hop)}, true},
		{"a younger Node's", "c1", false, []any{sayer("n1", 2, "192.0.2.8"), sayer("n0", 3, hop)}, false},
		{"a younger Node's tunnel", "c1", false, []any{facts.Tunnels{"c0": {address}}, sayer("n1", 2, "192.0.2.8"), sayer("n0", 3, hop)}, true},
		{"a younger Node's with the label", "c1", false, []any{sayer("n1", 2, "192.0.2.8"), labelled}, true},
		{"its own", "c0", false, []any{sayer("n0", 1, "192.0.2.8", hop)}, true},
		{"with a gateway of no node", "c9", false, []any{sayer("n0", 1, hop)}, false},
		{"with a gateway of the administrator", "c1", true, []any{sayer("n1", 2, "192.0.2.8"), sayer("n0", 1, hop)}, false},
	} {
		c, err := gateway(tt.chassis)
		if err != nil {
			t.Fatal(err)
		}
		if tt.administrator {
			c.NumberedBy = ""
		}
		puts := append(slices.Clone(tt.puts), c)
		for first := range puts { // each of them once first, once last, and forwards and backwards
			for range 2 {
				slices.Reverse(puts)
				w := NewWorld()
				for i := range puts {
					w.Put(puts[(first+i)%len(puts)])
				}
				if has := slices.Contains(w.Facts().Addresses["n0"], address); has != tt.has {
					t.Errorf("%s, from number %d: %t", tt.name, first, has)
				}
			}
		}
	}
}

// apiService is the API server's Service.
func apiService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "172.16.0.1", ClusterIPs: []string{"172.16.0.1"},
			Ports: []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// apiEndpoints is the API server's endpoint slice, with an address.
func apiEndpoints(address string) *discoveryv1.EndpointSlice {
	port, protocol := int32(6443), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
	}
}
