package main

import (
	"context"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

// cluster is the control plane of the tests that need one; startedCluster: some did.
var (
	cluster = sync.OnceValues(func() (*kubetest.Cluster, error) {
		startedCluster = true
		return kubetest.Start(context.Background(), kubetest.Options{Without: []string{"kube-scheduler"}})
	})
	startedCluster bool
)

func startCluster(t *testing.T) *kubetest.Cluster {
	t.Helper()
	require.Nothing(t, require.Cluster, kubetest.Missing())
	c, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ovn-kubernetes"}}
	if _, err := c.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return c
}

// The databases of the Service ovnkube-db replace those of the options, with their scheme; a wrong object changes nothing.
func TestDatabasesOfAService(t *testing.T) {
	kubernetes := startCluster(t)
	h := newHost(t)
	h.startSwitch()
	p := h.start(strings.Fields("-init-master=n1 -k8s-kubeconfig=" + kubernetes.Kubeconfig + " -nb-address=tcp:127.0.0.1:1 -sb-address=tcp:127.0.0.1:1"))
	p.says("waiting: connecting to NB at tcp:127.0.0.1:1")
	api := kubernetes.Client().DiscoveryV1().EndpointSlices("ovn-kubernetes")
	port := func(name string, number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "ovnkube-db-x", Labels: map[string]string{discoveryv1.LabelServiceName: "ovnkube-db"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}},
		Ports:       []discoveryv1.EndpointPort{port("north", 2)},
	}
	slice, err := api.Create(t.Context(), slice, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), slice.Name, metav1.DeleteOptions{}) })
	p.says(`EndpointSlice ovnkube-db-x has the ports ["north"]; want two, north and south`)
	slice.Endpoints[0].Addresses = []string{"192.0.2.3"}
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"192.0.2.2"}})
	slice.Ports = append(slice.Ports, port("south", 3))
	if _, err := api.Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.says(`setting ovn-nb: now "tcp:192.0.2.2:2,tcp:192.0.2.3:2"`)
	p.says(`setting ovn-remote: now "tcp:192.0.2.2:3,tcp:192.0.2.3:3"`)
	p.says("waiting: connecting to NB at tcp:192.0.2.2:2: ")
	if strings.Contains(p.out.String(), "192.0.2.7") {
		t.Error("it has used a wrong object")
	}
}
