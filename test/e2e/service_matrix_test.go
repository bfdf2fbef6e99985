package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/world"
)

// hostPort is the port of the hostNetwork backend.
const hostPort = 9090

// TestServiceMatrix tests every kind of client, backend and frontend, by
// world.Networks, in both families. AC-77: its Services have the type LoadBalancer, and
// NodePorts. AC-75: external IPs lead through the gateway.
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

	placement := world.Placement{Node: cluster.Node("minion1"), OtherNode: gw, Near: p["near"], Far: p["far"]}
	var services []world.Service
	var attempts []world.Attempt
	for i, name := range []string{"web", "hostweb"} {
		service := createService(t, name, []int{kubelet.DefaultPort, hostPort}[i], i+1, nil)
		service.Backends = []world.Endpoint{p[name]}
		services = append(services, service)
		clients := append(placement.InsideClients(p[name]), cluster.OutsideClient())
		for _, attempt := range cluster.ServiceAttempts(service, cluster.Frontends(service, seen), clients) {
			attempt.Row = name + " from " + attempt.Row
			attempts = append(attempts, attempt)
		}
	}
	routeServices(t, services, seen)
	awaitServices(t, services)
	try(t, attempts)
	t.Logf("%d attempts: the address that the backend saw\n\n%s", len(attempts), world.Table(attempts))
	for backend, heading := range map[string]string{"web from ": "A backend that is a pod:", "hostweb from ": "A backend that is a pod with `hostNetwork`:"} {
		of := slices.DeleteFunc(slices.Clone(attempts), func(w world.Attempt) bool { return !strings.HasPrefix(w.Row, backend) })
		compareCells(t, cells(t, heading, 1), of, func(w world.Attempt) cell {
			return cell{clientTitles[strings.TrimPrefix(w.Row, backend)], doorTitles[w.Column]}
		})
	}
}

// clientTitles and doorTitles are the names of clients and frontends in the tables
// of docs/services.md.
var (
	clientTitles = map[string]string{
		"pod, same node": "a pod on the backend's node", "pod, other node": "a pod on another node (minion2)", "the backend itself": "the backend itself",
		"host, same node": "the backend's node", "host, other node": "another node (minion2)", "outside": "outside",
	}
	doorTitles = map[string]string{
		"ClusterIP": "ClusterIP", "master:NodePort": "NodePort of master", "minion1:NodePort": "of minion1", "minion2:NodePort": "of minion2",
		"externalIP": "external IP", "LB IP": "load balancer's IP", "gateway:NodePort": "NodePort of the gateway",
	}
)

// awaitServices waits until all hosts have programmed services as they are now.
func awaitServices(t *testing.T, services []world.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cluster.AwaitServices(ctx, services); err != nil {
		t.Fatal(err)
	}
}

// routeServices routes the external and load-balancer IPs of services to a gateway
// until the end of the test.
func routeServices(t *testing.T, services []world.Service, gateway []netip.Addr) {
	t.Helper()
	withdraw, err := cluster.RouteServices(services, gateway)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(withdraw)
}

// createService creates a Service until the end of the test.
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
