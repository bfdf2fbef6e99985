package e2e

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/world"
)

// Pods and nodes reach Services of a ServiceCIDR that is not in the setting, and
// addresses in it without a Service refuse connections. When it is deleted, nothing
// of it stays.
func TestServiceCIDRs(t *testing.T) {
	newer(t, "ServiceCIDRs", kubetest.ServiceCIDRs)
	p := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	api := cluster.Kube.Client().NetworkingV1().ServiceCIDRs()
	more := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"172.29.7.0/24", "fd02:7::/112"}}}
	if _, err := api.Create(t.Context(), more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Delete(context.Background(), more.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		for _, n := range cluster.Nodes {
			var left string
			eventually(t, n.Name+" has no route left", func() bool {
				left = sh(t, n, "ip route show proto 47; ip -6 route show proto 47")
				return left == ""
			}, &left)
		}
		consistent(t)
	})
	eventually(t, "the API server takes addresses from it", func() bool {
		c, err := api.Get(t.Context(), more.Name, metav1.GetOptions{})
		return err == nil && len(c.Status.Conditions) > 0 && c.Status.Conditions[0].Status == metav1.ConditionTrue
	})
	to := []netip.Addr{netip.MustParseAddr("172.29.7.9"), netip.MustParseAddr("fd02:7::9")}
	var err error
	eventually(t, "the Service is made", func() bool { // the API server's allocator learns of the subnet with a delay
		err = createAt(t, to)
		return err == nil
	})
	var attempts []world.Attempt
	for _, from := range append(hosts(), p["client"]) {
		attempts = append(attempts, waysTo(from, to, 80, []world.Endpoint{p["web-a"]}, from.Addresses)...)
	}
	try(t, attempts)
	for _, from := range append(hosts()[:1], p["client"]) {
		refused(t, from, netip.AddrPortFrom(to[0].Next(), 80))
	}
	consistent(t)
}

// createAt creates the Service web with given cluster IPs until the end of the
// test.
func createAt(t *testing.T, at []netip.Addr) error {
	t.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	ips := []string{at[0].String(), at[1].String()}
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &both, Selector: map[string]string{world.AppLabel: "web"}, ClusterIP: ips[0], ClusterIPs: ips,
			Ports: servicePorts(),
		},
	}
	api := cluster.Kube.Client().CoreV1().Services("default")
	if _, err := api.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		return err
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), s.Name, metav1.DeleteOptions{}) })
	return nil
}
