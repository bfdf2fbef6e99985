package master_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// service creates a Service with one endpoint until the end of the test, and returns its cluster IP.
func (n *network) service(name string) string {
	n.Helper()
	api := cluster.Client()
	s, err := api.CoreV1().Services("default").Create(n.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must(n.T, err)
	port := int32(8080)
	_, err = api.DiscoveryV1().EndpointSlices("default").Create(n.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.9"}}},
	}, metav1.CreateOptions{})
	must(n.T, err)
	n.Cleanup(func() {
		err := api.CoreV1().Services("default").Delete(context.Background(), name, metav1.DeleteOptions{})
		must(n.T, errors.Join(err, api.DiscoveryV1().EndpointSlices("default").Delete(context.Background(), name, metav1.DeleteOptions{})))
	})
	return s.Spec.ClusterIP
}

// AC-74: frontends that were inserted by hand go when a master starts, and so do the rows of a Service that never was. The valid
// frontend keeps its value all the time, and rows of others stay.
func TestCheck74_StaleFrontends(t *testing.T) {
	const stale = `"10.9.9.9:80"="10.9.9.8:80"`
	n := newNetwork(t)
	m := n.start("10.0.0.0/16/24", false)
	n.node("a", nil)
	valid := n.service("web") + ":80=10.0.0.9:8080"
	vips := func() string {
		return n.find("Load_Balancer", "vips", "external_ids:ovn-k8s-owner=service/default/web")
	}
	eventually(t, "the frontend", func() bool { return vips() == valid })
	before := n.find("Load_Balancer", "_uuid", "external_ids:ovn-k8s-owner=service/default/web")
	m.stop()
	n.nbctl("set", "Load_Balancer", before, "vips:"+stale)
	n.nbctl("create", "Load_Balancer", "name=none", "vips:"+stale, "external_ids:ovn-k8s-owner=service/default/none", "external_ids:ovn-k8s-id=service/default/none/tcp")
	n.nbctl("lb-add", "theirs", "10.9.9.7:80", "10.9.9.8:80")
	n.start("10.0.0.0/16/24", false)
	eventually(t, "the stale frontends are gone", func() bool {
		now := vips()
		if !strings.Contains(now, valid) {
			t.Errorf("the Service has %s", now)
		}
		return now == valid && n.find("Load_Balancer", "name", "name=none") == ""
	})
	if after := n.find("Load_Balancer", "_uuid", "external_ids:ovn-k8s-owner=service/default/web"); after != before {
		t.Errorf("row %s, before %s", after, before)
	}
	if n.find("Load_Balancer", "name", "name=theirs") == "" {
		t.Error("a load balancer of others is gone")
	}
}
