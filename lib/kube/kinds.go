package kube

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/names"
)

// A Kind is a kind of watched objects: its resource name in the API.
type Kind string

// Kinds of objects. Each has a line in kinds.
const (
	Pods            Kind = "pods"
	Nodes           Kind = "nodes"
	Services        Kind = "services"
	EndpointSlices  Kind = "endpointslices"
	Namespaces      Kind = "namespaces"
	NetworkPolicies Kind = "networkpolicies"
	ServiceCIDRs    Kind = "servicecidrs" // since Kubernetes 1.33
)

// A description says how to read objects of a Kind.
type description struct {
	kind     Kind
	object   runtime.Object // an empty object
	client   func(kubernetes.Interface) rest.Interface
	optional bool // if the resource or the permission to read it is missing, there are no objects
}

// kinds is the one list of kinds.
func kinds() []description {
	core := func(c kubernetes.Interface) rest.Interface { return c.CoreV1().RESTClient() }
	discovery := func(c kubernetes.Interface) rest.Interface { return c.DiscoveryV1().RESTClient() }
	networking := func(c kubernetes.Interface) rest.Interface { return c.NetworkingV1().RESTClient() }
	return []description{
		{kind: Nodes, object: &corev1.Node{}, client: core},
		{kind: Namespaces, object: &corev1.Namespace{}, client: core},
		{kind: NetworkPolicies, object: &networkingv1.NetworkPolicy{}, client: networking},
		{kind: Pods, object: &corev1.Pod{}, client: core},
		{kind: Services, object: &corev1.Service{}, client: core},
		{kind: EndpointSlices, object: &discoveryv1.EndpointSlice{}, client: discovery},
		{kind: ServiceCIDRs, object: &networkingv1.ServiceCIDR{}, client: networking, optional: true},
	}
}

// Kinds lists all kinds.
func Kinds() []Kind {
	var out []Kind
	for _, d := range kinds() {
		out = append(out, d.kind)
	}
	return out
}

func (k Kind) describe() description {
	all := kinds()
	i := slices.IndexFunc(all, func(d description) bool { return d.kind == k })
	if i < 0 {
		panic(fmt.Sprintf("kube: kind %s is not in the table", k))
	}
	return all[i]
}

// Object returns an empty object of the kind.
func (k Kind) Object() runtime.Object { return k.describe().object }

// trim removes unused fields from an object: objects in full would take hundreds of megabytes in a large cluster.
// LIST and WATCH both use it.
func trim(o runtime.Object) error {
	switch o := o.(type) {
	case *corev1.Pod:
		labels := o.Labels
		*o = corev1.Pod{
			ObjectMeta: trimmed(o.ObjectMeta),
			Spec: corev1.PodSpec{
				NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork,
				Containers: withPorts(o.Spec.Containers), InitContainers: withPorts(o.Spec.InitContainers),
			},
			Status: corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
		}
		o.Labels = labels
	case *corev1.Node:
		*o = corev1.Node{ObjectMeta: trimmed(o.ObjectMeta), Status: corev1.NodeStatus{Addresses: o.Status.Addresses}}
	case *corev1.Namespace:
		labels := o.Labels
		*o = corev1.Namespace{ObjectMeta: trimmed(o.ObjectMeta)}
		o.Labels = labels
	case *networkingv1.NetworkPolicy:
		*o = networkingv1.NetworkPolicy{ObjectMeta: trimmed(o.ObjectMeta), Spec: o.Spec}
	case *networkingv1.ServiceCIDR:
		*o = networkingv1.ServiceCIDR{ObjectMeta: trimmed(o.ObjectMeta), Spec: o.Spec}
	case *corev1.Service:
		*o = corev1.Service{ObjectMeta: trimmed(o.ObjectMeta), Spec: o.Spec, Status: o.Status}
	case *discoveryv1.EndpointSlice:
		o.ObjectMeta, o.TypeMeta = trimmed(o.ObjectMeta), metav1.TypeMeta{}
	default:
		return fmt.Errorf("trimming: no fields are known of %T", o)
	}
	return nil
}

// withPorts returns the containers with named ports or host ports.
func withPorts(containers []corev1.Container) (out []corev1.Container) {
	for _, c := range containers {
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name != "" || p.HostPort != 0 }) {
			out = append(out, corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
	}
	return out
}

func trimmed(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
	}
	for _, key := range usedLabels() {
		if v, ok := m.Labels[key]; ok {
			metav1.SetMetaDataLabel(&out, key, v)
		}
	}
	for _, key := range []string{names.Annotation, names.AnnotationUID, names.ACLLogging, corev1.MirrorPodAnnotationKey} {
		if v, ok := m.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&out, key, v)
		}
	}
	return out
}

// usedLabels lists the labels read by this project.
func usedLabels() []string {
	return []string{corev1.LabelTopologyZone, discoveryv1.LabelServiceName, names.LabelServiceProxy, names.LabelHeadless, names.LabelControlPlane}
}
