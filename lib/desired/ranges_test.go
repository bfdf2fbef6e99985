package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/names"
)

func serviceCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

func TestServiceCIDRs(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16", "fd02::/112")))
	s := newService("web", 1)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "172.31.0.9", []string{"172.31.0.9"}
	w.Put(s)
	if _, err := w.Rows("service/default/web"); err == nil || !strings.Contains(err.Error(), "is outside the subnets of services") {
		t.Errorf("an address of nobody: %v", err)
	}
	touched := w.Replace(&networkingv1.ServiceCIDR{}, slices.Values([]any{serviceCIDR("kubernetes", "172.16.0.0/16"), serviceCIDR("more", "172.31.0.0/24")}))
	if !slices.Contains(touched, servicecidr.Unit) || !slices.Contains(touched, service.Key{Namespace: "default", Name: "web"}.Unit()) {
		t.Errorf("ServiceCIDRs touch %v", touched)
	}
	if _, err := w.Rows("service/default/web"); err != nil {
		t.Error(err)
	}
	rows, err := w.Rows(servicecidr.Unit)
	if text := fmt.Sprint(rows); err != nil || len(rows) != 3 || !strings.Contains(text, "ip4.dst == 172.31.0.0/24") {
		t.Errorf("%v: %s", err, text)
	}
	// A range that would reject the cluster's own traffic is left out and reported.
	w.Put(serviceCIDR("bad", "10.0.0.0/9"))
	rows, err = w.Rows(servicecidr.Unit)
	if err == nil || !strings.Contains(err.Error(), "subnet 10.0.0.0/9 of ServiceCIDR bad overlaps") || len(rows) != 3 || badServiceCIDR(w) != "bad" {
		t.Errorf("%v: %v", err, rows)
	}
	w.Remove(serviceCIDR("bad"))
	if touched := w.Remove(serviceCIDR("more")); !slices.Contains(touched, service.Key{Namespace: "default", Name: "web"}.Unit()) {
		t.Errorf("a ServiceCIDR's end touches %v", touched)
	}
	if rows, err := w.Rows(servicecidr.Unit); err != nil || len(rows) != 2 {
		t.Errorf("%v: %v", err, rows)
	}
}

// A ServiceCIDR within a configured subnet is reported when a node of the control plane gets an address there, and no longer
// when the node goes.
func TestANodeInAConfiguredSubnetTouchesServiceCIDRs(t *testing.T) {
	w := manyNodes(t, 1)
	w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16")))
	w.Put(serviceCIDR("kubernetes", "172.16.0.0/16"))
	inside := largeNode(0, 0)
	inside.Status.Addresses[0].Address, inside.Labels[names.LabelControlPlane] = "172.16.0.9", ""
	for _, n := range []*corev1.Node{inside, largeNode(0, 0)} {
		if touched := w.Put(n); !slices.Contains(touched, servicecidr.Unit) {
			t.Errorf("node with %s touches %v", n.Status.Addresses[0].Address, touched)
		}
	}
	if name := badServiceCIDR(w); name != "" {
		t.Errorf("bad is %s", name)
	}
}

// A node switches a ServiceCIDR off by the address of its tunnels only, not by a report.
func TestAReportSwitchesNoServiceCIDROff(t *testing.T) {
	w := manyNodes(t, 1)
	chassis := w.Facts().Cluster.Chassis["node-0"]
	inside := netip.MustParseAddr("172.16.0.9")
	w.Put(facts.Tunnels{chassis: {netip.MustParseAddr("192.0.2.10")}})
	w.Put(serviceCIDR("kubernetes", "172.16.0.0/16"))
	node := largeNode(0, 0)
	node.Status.Addresses[0].Address = inside.String()
	w.Put(node)
	if name := badServiceCIDR(w); name != "" || len(w.Facts().Ranges) != 1 {
		t.Errorf("after a report: bad is %q, ranges %v", name, w.Facts().Ranges)
	}
	if _, err := w.Rows("host/node-0"); err == nil || !strings.Contains(err.Error(), "address 172.16.0.9 of node node-0 lies in 172.16.0.0/16") {
		t.Errorf("the report is not told: %v", err)
	}
	w.Put(facts.Tunnels{chassis: {inside}})
	if name := badServiceCIDR(w); name != "kubernetes" || len(w.Facts().Ranges) != 0 {
		t.Errorf("with a tunnel: bad is %q, ranges %v", name, w.Facts().Ranges)
	}
}

// A ServiceCIDR equal to the LAN of nodes is switched off, also if their tunnels are elsewhere.
func TestAServiceCIDRThatIsANetworkOfNodes(t *testing.T) {
	label := func(n *corev1.Node) { n.Labels[names.LabelControlPlane] = "" }
	reports := func(i int, change ...func(*corev1.Node)) func(*World) {
		return func(w *World) {
			n := largeNode(i, 0)
			n.Status.Addresses[0].Address = fmt.Sprint("172.16.0.", 9+i)
			for _, c := range change {
				c(n)
			}
			w.Put(n)
		}
	}
	gateway := func(numberedBy string) func(*World) {
		return func(w *World) {
			c := w.Facts().Cluster
			c.NumberedBy, c.Gateways = numberedBy, maps.Clone(c.Gateways)
			g := c.Gateways["node-0"]
			g.IPs = prefixes("172.16.0.99/24")
			c.Gateways["node-0"] = g
			w.Put(c)
		}
	}
	for _, tt := range []struct {
		name string
		bad  bool
		do   []func(*World)
	}{
		{"one node", false, []func(*World){reports(0)}},
		{"two nodes", true, []func(*World){reports(0), reports(1)}},
		{"two nodes, of which one goes elsewhere", false, []func(*World){reports(0), reports(1), func(w *World) { w.Put(largeNode(1, 0)) }}},
		{"a node of the control plane", true, []func(*World){reports(0, label)}},
		{"a node that gets the label", true, []func(*World){reports(0), reports(0, label)}},
		{"a node that loses the label", false, []func(*World){reports(0, label), reports(0)}},
		{"a gateway of the administrator", true, []func(*World){gateway("")}},
		{"a gateway claimed by a node", false, []func(*World){gateway(names.Ovnkube)}},
		{"a gateway claimed by the node that reports an address", false, []func(*World){gateway(names.Ovnkube), reports(0)}},
		{"a gateway claimed by a node, and another node", true, []func(*World){gateway(names.Ovnkube), reports(1)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, tunnels := range []facts.Tunnels{nil, {"chassis-0": {netip.MustParseAddr("192.0.2.10")}}} {
				w := manyNodes(t, 2)
				w.Put(tunnels)
				w.Put(serviceCIDR("kubernetes", "172.16.0.0/16"))
				for _, do := range tt.do {
					do(w)
				}
				if bad := badServiceCIDR(w) != ""; bad != tt.bad || bad != (len(w.Facts().Ranges) == 0) {
					t.Errorf("tunnels %v: bad is %t, ranges %v", tunnels, bad, w.Facts().Ranges)
				}
			}
		})
	}
}

func badServiceCIDR(w *World) string {
	name, _ := w.Facts().BadServiceCIDR()
	return name
}
