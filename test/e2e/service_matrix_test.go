package e2e

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/world"
)

// hostPort is where the hostNetwork backend answers.
const hostPort = 9090

// TestServiceMatrix tries every client of every kind of backend through every
// door, by TCP and UDP, in both families. This kernel has no SCTP.
func TestServiceMatrix(t *testing.T) {
	where := map[string]string{"near": "minion1", "far": "minion2", "web": "minion1", "hostweb": "minion1"}
	p := pods(t, where, func(pod *corev1.Pod) {
		if pod.Name == "hostweb" {
			pod.Spec.HostNetwork = true
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: hostPort, HostPort: hostPort}}
		}
	})
	gw := cluster.Node("minion2")
	seen := addGateway(t, gw, world.Dedicated)

	around := world.Around{Node: cluster.Node("minion1"), OtherNode: gw, Near: p["near"], Far: p["far"]}
	var services []world.Service
	var ways []world.Way
	for i, name := range []string{"web", "hostweb"} {
		service := createService(t, name, []int{kubelet.DefaultPort, hostPort}[i], i+1, nil)
		service.Backends = []world.Endpoint{p[name]}
		services = append(services, service)
		clients := append(around.InsideClients(p[name]), cluster.OutsideClient())
		for _, way := range cluster.ServiceWays(service, cluster.Doors(service, seen), clients) {
			way.Row = name + " from " + way.Row
			ways = append(ways, way)
		}
	}
	routeServices(t, services, seen)
	failed := world.Try(t.Context(), ways)
	t.Logf("%d of %d ways work: who the backend saw\n\n%s", len(ways)-len(failed), len(ways), world.Table(ways))
	for _, way := range failed {
		t.Errorf("%v: %v", way, way.Err)
	}
}

// routeServices leads what is for outer addresses of Services to a gateway, for
// the length of the test.
func routeServices(t *testing.T, services []world.Service, gateway []netip.Addr) {
	t.Helper()
	withdraw, err := cluster.RouteServices(services, gateway)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(withdraw)
}

// createService makes a Service for the length of the test.
func createService(t *testing.T, name string, port, number int, edit func(*corev1.Service)) world.Service {
	t.Helper()
	s, err := cluster.CreateService(t.Context(), name, port, number, edit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := cluster.Kube.Client().CoreV1().Services(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return s
}
