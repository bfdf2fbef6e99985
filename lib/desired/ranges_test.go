package desired

import (
	"fmt"
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

// A ServiceCIDR within a configured subnet is reported when a node gets an address there, and no longer when the node
// goes.
func TestANodeInAConfiguredSubnetTouchesServiceCIDRs(t *testing.T) {
	w := manyNodes(t, 1)
	w.Put(servicecidr.Ranges(prefixes("172.16.0.0/16")))
	w.Put(serviceCIDR("kubernetes", "172.16.0.0/16"))
	inside := largeNode(0, 0)
	inside.Status.Addresses[0].Address = "172.16.0.9"
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
	w.Put(facts.Tunnels{chassis: {inside}})
	if name := badServiceCIDR(w); name != "kubernetes" || len(w.Facts().Ranges) != 0 {
		t.Errorf("with a tunnel: bad is %q, ranges %v", name, w.Facts().Ranges)
	}
}

func badServiceCIDR(w *World) string {
	name, _ := w.Facts().BadServiceCIDR()
	return name
}
