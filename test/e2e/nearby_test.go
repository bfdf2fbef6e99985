package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sameNode is the release of Kubernetes with the value PreferSameNode.
const sameNode = "1.34"

// inZone sets the zone of a node, or removes it.
func inZone(ctx context.Context, t *testing.T, node, zone string) {
	t.Helper()
	value := fmt.Sprintf("%q", zone)
	if zone == "" {
		value = "null"
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, corev1.LabelTopologyZone, value)
	if _, err := cluster.Kube.Client().CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Clients get endpoints of their zone, or of their node, according to trafficDistribution.
func TestTrafficDistribution(t *testing.T) {
	newer(t, "values PreferSameNode of trafficDistribution", sameNode)
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "web-c": "master", "near": "minion1", "far": "minion2"})
	for node, zone := range map[string]string{"minion1": "east", "minion2": "west", "master": "west"} {
		inZone(t.Context(), t, node, zone)
		t.Cleanup(func() { inZone(context.Background(), t, node, "") })
	}
	prefer := func(what string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.TrafficDistribution = &what }
	}
	s := service(t, "web", prefer(corev1.ServiceTrafficDistributionPreferSameZone))
	var at []netip.AddrPort
	for _, a := range addrs(s.Spec.ClusterIPs) {
		at = append(at, netip.AddrPortFrom(a, 80))
	}
	master, minion1 := hosts()[0], hosts()[1]
	for _, to := range at {
		answer(t, p["near"], to, p["web-a"])
		answer(t, minion1, to, p["web-a"])
		answer(t, p["far"], to, p["web-b"], p["web-c"])
		answer(t, master, to, p["web-b"], p["web-c"])
	}
	change(t, "web", prefer(corev1.ServiceTrafficDistributionPreferSameNode))
	for _, to := range at {
		answer(t, p["near"], to, p["web-a"])
		answer(t, p["far"], to, p["web-b"])
		answer(t, master, to, p["web-c"])
	}
	change(t, "web", func(s *corev1.Service) { s.Spec.TrafficDistribution = nil })
	answer(t, p["near"], at[0], p["web-a"], p["web-b"], p["web-c"])
	// The former name of the field's value. If an endpoint has no zone, all endpoints serve all clients.
	change(t, "web", prefer(corev1.ServiceTrafficDistributionPreferClose))
	answer(t, p["near"], at[0], p["web-a"])
	inZone(t.Context(), t, "minion1", "")
	answer(t, p["near"], at[0], p["web-a"], p["web-b"], p["web-c"])
}
