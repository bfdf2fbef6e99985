package kube

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"ovn-k8s/lib/kube/client"
	"ovn-k8s/lib/names"
)

// A Kind says how objects of one kind are read: a line of the table.
type Kind struct {
	// Name is the name of the resource, as in "endpointslices".
	Name string
	// Object is an empty object. Its type identifies the kind; API group, version and client follow from it.
	Object runtime.Object
	// Optional kinds may be missing, or forbidden to read: then there are no objects, and rows of earlier ones go. Until
	// the list of any other kind is known, no rows go.
	Optional bool
	// AddToScheme registers Object and its list. It is nil for kinds of Kubernetes itself.
	AddToScheme func(*runtime.Scheme) error

	keep func(runtime.Object) bool
	node func(runtime.Object) string // the node of an object, nil if objects have none
	// field is the field with that node, for a selector.
	field string
	// wire are the fields read by keep, of an object in protobuf; nil: all are decoded.
	wire fields
}

// NewKind returns the kind of the objects T. keep returns a copy of an object with the fields that are read: objects in
// full would take hundreds of megabytes in a large cluster. LIST and WATCH both use it.
func NewKind[T any, P interface {
	*T
	runtime.Object
}](name string, keep func(P) T) Kind {
	return Kind{Name: name, Object: P(new(T)), keep: func(o runtime.Object) bool {
		p, ok := o.(P)
		if ok {
			*p = keep(p)
		}
		return ok
	}}
}

// Kinds is the table: a line for each kind of objects that a role follows.
func Kinds() []Kind {
	return []Kind{
		NewKind("nodes", keepNode).on("metadata.name", func(o runtime.Object) string { return o.(*corev1.Node).Name }).reads(nodeFields()),
		NewKind("namespaces", keepNamespace).reads(otherFields()),
		NewKind("networkpolicies", keepPolicy).reads(otherFields()),
		NewKind(client.Resource().Resource, keepPod).on("spec.nodeName", func(o runtime.Object) string { return o.(*corev1.Pod).Spec.NodeName }).reads(podFields()),
		NewKind("services", keepService).reads(otherFields()),
		NewKind("endpointslices", keepSlice).reads(otherFields()),
		NewKind("servicecidrs", keepServiceCIDR).reads(otherFields()).optional(), // since Kubernetes 1.33
	}
}

func (k Kind) optional() Kind {
	k.Optional = true
	return k
}

func (k Kind) on(field string, node func(runtime.Object) string) Kind {
	k.node, k.field = node, field
	return k
}

func (k Kind) reads(wire fields) Kind {
	k.wire = wire
	return k
}

// KindOf returns the line of the table for objects of example's type. It panics if there is none.
func KindOf(example any) Kind {
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Is(example) })
	if i < 0 {
		panic(fmt.Sprintf("kube: no kind has objects of type %T", example))
	}
	return all[i]
}

// Is reports whether o is an object of the kind.
func (k Kind) Is(o any) bool { return reflect.TypeOf(o) == reflect.TypeOf(k.Object) }

// Trim removes all other fields than those kept from an object.
func (k Kind) Trim(o runtime.Object) error {
	if !k.keep(o) {
		return fmt.Errorf("trimming %s: got a %T", k.Name, o)
	}
	return nil
}

// schemeOf knows the kinds of Kubernetes and those of a list.
func schemeOf(kinds ...Kind) (*runtime.Scheme, error) {
	if !slices.ContainsFunc(kinds, func(k Kind) bool { return k.AddToScheme != nil }) {
		return scheme.Scheme, nil
	}
	all := runtime.NewScheme()
	if err := scheme.AddToScheme(all); err != nil {
		return nil, fmt.Errorf("registering the kinds of Kubernetes: %w", err)
	}
	for _, k := range kinds {
		if k.AddToScheme == nil {
			continue
		}
		if err := k.AddToScheme(all); err != nil {
			return nil, fmt.Errorf("registering %s: %w", k.Name, err)
		}
	}
	return all, nil
}

// Version is the group, version and kind in the API.
func (k Kind) Version() (schema.GroupVersionKind, error) {
	s, err := schemeOf(k)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	all, _, err := s.ObjectKinds(k.Object)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("looking up the API group of %s: %w", k.Name, err)
	}
	return all[0], nil
}

func keepNode(o *corev1.Node) corev1.Node {
	out := corev1.Node{
		ObjectMeta: KeepMeta(o.ObjectMeta, corev1.LabelTopologyZone, names.LabelControlPlane,
			names.HostSubnetAnnotation, names.SubnetsAnnotation, names.ChassisAnnotation, names.GatewayAnnotation),
		Status: corev1.NodeStatus{Addresses: o.Status.Addresses},
	}
	out.DeletionTimestamp = o.DeletionTimestamp
	if slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == names.TaintToBeDeleted }) {
		out.Spec.Taints = []corev1.Taint{{Key: names.TaintToBeDeleted}}
	}
	return out
}

func keepNamespace(o *corev1.Namespace) corev1.Namespace {
	out := corev1.Namespace{ObjectMeta: KeepMeta(o.ObjectMeta, names.ACLLogging)}
	out.Labels = o.Labels
	return out
}

func keepPolicy(o *networkingv1.NetworkPolicy) networkingv1.NetworkPolicy {
	return networkingv1.NetworkPolicy{ObjectMeta: KeepMeta(o.ObjectMeta), Spec: o.Spec}
}

func keepPod(o *corev1.Pod) corev1.Pod {
	out := corev1.Pod{
		ObjectMeta: KeepMeta(o.ObjectMeta, names.Annotation, names.AnnotationUID, corev1.MirrorPodAnnotationKey, names.IngressBandwidth, names.EgressBandwidth),
		Spec: corev1.PodSpec{
			NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork,
			Containers: withPorts(o.Spec.Containers), InitContainers: withPorts(o.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
	}
	out.Labels = o.Labels
	return out
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

func keepService(o *corev1.Service) corev1.Service {
	s := &o.Spec
	for i, p := range s.Ports {
		s.Ports[i] = corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, NodePort: p.NodePort}
	}
	ingress := o.Status.LoadBalancer.Ingress
	for i, a := range ingress {
		ingress[i] = corev1.LoadBalancerIngress{IP: a.IP, IPMode: a.IPMode}
	}
	return corev1.Service{
		ObjectMeta: KeepMeta(o.ObjectMeta, names.LabelServiceProxy, names.LabelHeadless),
		Spec: corev1.ServiceSpec{
			Type: s.Type, Ports: s.Ports, ClusterIP: s.ClusterIP, ClusterIPs: s.ClusterIPs, ExternalIPs: s.ExternalIPs,
			LoadBalancerSourceRanges: s.LoadBalancerSourceRanges, SessionAffinity: s.SessionAffinity, SessionAffinityConfig: s.SessionAffinityConfig,
			InternalTrafficPolicy: s.InternalTrafficPolicy, ExternalTrafficPolicy: s.ExternalTrafficPolicy, HealthCheckNodePort: s.HealthCheckNodePort,
			PublishNotReadyAddresses: s.PublishNotReadyAddresses,
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
}

func keepSlice(o *discoveryv1.EndpointSlice) discoveryv1.EndpointSlice {
	for i, e := range o.Endpoints {
		o.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName, Hints: e.Hints}
	}
	for i, p := range o.Ports {
		o.Ports[i] = discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
	}
	return discoveryv1.EndpointSlice{
		ObjectMeta:  KeepMeta(o.ObjectMeta, discoveryv1.LabelServiceName, names.LabelServiceProxy, names.LabelHeadless),
		AddressType: o.AddressType, Endpoints: o.Endpoints, Ports: o.Ports,
	}
}

func keepServiceCIDR(o *networkingv1.ServiceCIDR) networkingv1.ServiceCIDR {
	return networkingv1.ServiceCIDR{ObjectMeta: KeepMeta(o.ObjectMeta), Spec: o.Spec}
}

// KeepMeta keeps the metadata common to all kinds, and the labels and annotations with some keys.
func KeepMeta(m metav1.ObjectMeta, keys ...string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
	}
	for _, key := range keys {
		if v, ok := m.Labels[key]; ok {
			metav1.SetMetaDataLabel(&out, key, v)
		}
		if v, ok := m.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&out, key, v)
		}
	}
	return out
}
