package hosts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/run"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/world"
)

const (
	// allPods and so on are the objects of the cluster around the measured node.
	allPods, allServices, allNodes = 10000, 500, 100
	// nodePorts of the Services have a NodePort.
	nodePorts = 100
	// maxNodeMemory is the most memory of ovnkube in the role node, in MB.
	maxNodeMemory = 70
	// quiet is the time after the last object until the memory is read.
	quiet = 20 * time.Second
)

// MeasureNode measures the memory of ovnkube -init-node with its 100 pods in a large cluster. The other pods and nodes are objects
// only, and the master ends before they come: it has no part in the figure.
func MeasureNode(ctx context.Context, b *run.Bench) error {
	w, end, err := b.World(ctx, "node", world.Options{OVNKube: true})
	if err != nil {
		return err
	}
	defer end()
	config := plugins(b)[0].config
	shim := plugin{"ours", b.Programs.Path("ovn-k8s-cni-shim"), config}
	n := newCNINode(b, w.Nodes[1].Host, [2]plugin{shim, shim}, true)
	if err := n.pods(ctx, w.Kube); err != nil {
		return err
	}
	boxes, err := n.sandboxes(ctx, shim, n.all)
	if err != nil {
		return err
	}
	for _, s := range boxes {
		if _, err := n.call(ctx, s, "ADD"); err != nil {
			return err
		}
	}
	alone, _, err := n.memory()
	if err != nil {
		return err
	}
	if err := w.KillWatcher(ctx); err != nil {
		return err
	}
	b.Say("node: %d pods on %d nodes, %d Services", allPods, allNodes, allServices)
	if err := populate(ctx, w.Kube); err != nil {
		return err
	}
	if err := field.Pause(ctx, quiet); err != nil {
		return err
	}
	now, peak, err := n.memory()
	if err != nil {
		return err
	}
	b.Report.Alone(fmt.Sprintf("ovnkube -init-node, %d pods of %d, %d Services", cniPods, allPods, allServices), "MB", maxNodeMemory, now).
		Explain("RSS; %.1f MB before the other pods and the Services, peak %.1f MB", alone, peak)
	return nil
}

// memory is the present and the largest resident memory of ovnkube, in MB.
func (n *cniNode) memory() (now, peak float64, err error) {
	pid, err := os.ReadFile(n.host.Path(world.OVNKubePidfile))
	if err != nil {
		return 0, 0, err
	}
	return programs.Memory(n.host.Path("/proc/" + strings.TrimSpace(string(pid)) + "/status"))
}

// populate creates the other nodes, their pods, and Services with endpoints among these.
func populate(ctx context.Context, kube *kubetest.Cluster) error {
	api := kube.Client()
	err := field.Parallel(ctx, allNodes, func(ctx context.Context, i int) error {
		_, err := kube.CreateNode(ctx, field.NodeName(i))
		return err
	})
	if err != nil {
		return err
	}
	err = field.Parallel(ctx, allPods-cniPods, func(ctx context.Context, i int) error {
		p := field.NewPod(2, i)
		p.Namespace = metav1.NamespaceDefault
		_, err := api.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return field.Parallel(ctx, allServices, func(ctx context.Context, i int) error {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("service-%d", i)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}
		if i < nodePorts {
			s.Spec.Type = corev1.ServiceTypeNodePort
		}
		if _, err := api.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := api.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, endpoints(s, i), metav1.CreateOptions{})
		return err
	})
}

// endpoints are those of Service i.
func endpoints(s *corev1.Service, i int) *discoveryv1.EndpointSlice {
	name, port, ready := "http", int32(8080), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for e := range endpointsEach {
		node := field.NodeName(i + e)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.129.%d.%d", (i+e)%allNodes, 10+i%200)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return slice
}
