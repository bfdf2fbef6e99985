package e2e

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// Clouds translate the ExternalIP of a Node outside of the host (1:1 NAT). Pods reach the host there all the same, as
// clients of its own servers, and NodePorts. The host's gateway helper follows changes.
func TestExternalIPsThatACloudTranslates(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion2", "near": "minion1", "far": "minion2"})
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	n := cluster.Node("minion1")
	server, err := probe.Serve(n.Netns(), n.Name, kubelet.DefaultPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	to := []world.Endpoint{{Name: n.Name}}
	for _, external := range [][]string{{"203.0.113.20", "2001:db8:113::20"}, {"203.0.113.21", "2001:db8:113::21"}} {
		reportExternal(t, n.Name, external)
		var attempts []world.Attempt
		for _, from := range []world.Endpoint{p["near"], p["far"]} {
			attempts = append(attempts, waysTo(from, addrs(external), kubelet.DefaultPort, to, from.Addresses)...)
			attempts = append(attempts, nodePortWays(from, addrs(external), s, []world.Endpoint{p["web-a"]}, slices.Concat(from.Addresses, n.Management))...)
		}
		try(t, attempts)
	}
	consistent(t)
}

// reportExternal replaces the ExternalIPs of a Node until the end of the test.
func reportExternal(t *testing.T, name string, external []string) {
	t.Helper()
	replace := func(ctx context.Context, external []netip.Addr) error {
		api := cluster.Kube.Client().CoreV1().Nodes()
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			n, err := api.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			var all []corev1.NodeAddress
			for _, a := range n.Status.Addresses {
				if a.Type != corev1.NodeExternalIP {
					all = append(all, a)
				}
			}
			for _, a := range external {
				all = append(all, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a.String()})
			}
			n.Status.Addresses = all
			_, err = api.UpdateStatus(ctx, n, metav1.UpdateOptions{})
			return err
		})
	}
	if err := replace(t.Context(), addrs(external)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := replace(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
}
