package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"ovn-k8s/lib/names"
)

// An Event is a change of objects of one kind. Of Pods and Nodes, package desired reads namespace,
// name, UID, resourceVersion and our annotations, of Pods also labels, nodeName,
// hostNetwork, phase, podIPs and ports of containers, of Nodes also the zone and
// the addresses; other fields of these two kinds may be missing.
type Event struct {
	Kind    runtime.Object // an empty object of the kind
	Object  runtime.Object // the object as it is now, or as it was last if Gone
	Gone    bool
	Replace bool  // Objects are all that there are of the kind, and Object is nil
	Objects []any // runtime.Objects of the kind
}

// A Kind is a kind of objects that can be followed.
type Kind string

// Kinds of objects.
const (
	Pods           Kind = "pods"
	Nodes          Kind = "nodes"
	Services       Kind = "services"
	EndpointSlices Kind = "endpointslices"

	Namespaces      Kind = "namespaces"
	NetworkPolicies Kind = "networkpolicies"

	// ServiceCIDRs are there from Kubernetes 1.33 on. Before, there are none.
	ServiceCIDRs Kind = "servicecidrs"
)

// object returns an empty object of the kind.
func (k Kind) object() runtime.Object {
	switch k {
	case Pods:
		return &corev1.Pod{}
	case Nodes:
		return &corev1.Node{}
	case Services:
		return &corev1.Service{}
	case EndpointSlices:
		return &discoveryv1.EndpointSlice{}
	case Namespaces:
		return &corev1.Namespace{}
	case NetworkPolicies:
		return &networkingv1.NetworkPolicy{}
	case ServiceCIDRs:
		return &networkingv1.ServiceCIDR{}
	}
	panic(fmt.Sprintf("kube: no idea how to follow %s", k))
}

// client returns the API group's client.
func (k Kind) client(c kubernetes.Interface) rest.Interface {
	switch k {
	case EndpointSlices:
		return c.DiscoveryV1().RESTClient()
	case NetworkPolicies, ServiceCIDRs:
		return c.NetworkingV1().RESTClient()
	}
	return c.CoreV1().RESTClient()
}

// Watch sends every change of all objects of some kinds until ctx is done: first
// one Replace of each kind, then single changes, and a Replace again whenever the
// connection was lost for too long. send must not block. No copy of the objects
// is kept here: the receiver owns them.
func Watch(ctx context.Context, c kubernetes.Interface, log *logrus.Entry, send func(Event), kinds ...Kind) {
	var wg sync.WaitGroup
	for _, k := range kinds {
		wg.Go(func() {
			follow(ctx, k, k.list(c), &sink{kind: k.object(), send: send, optional: k == ServiceCIDRs}, log)
		})
	}
	wg.Wait()
}

// list is how to read all objects of a kind.
func (k Kind) list(c kubernetes.Interface) *cache.ListWatch {
	return cache.NewListWatchFromClient(k.client(c), string(k), corev1.NamespaceAll, fields.Everything())
}

// List returns all objects of some kinds as they are now, as one Replace of each
// kind.
func (c *Cluster) List(ctx context.Context, kinds ...Kind) ([]Event, error) {
	var out []Event
	for _, k := range kinds {
		e := Event{Kind: k.object(), Replace: true}
		list, err := source{k.list(c.clients)}.ListWithContext(ctx, metav1.ListOptions{})
		if k == ServiceCIDRs && withheld(err) {
			out = append(out, e)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", k, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			e.Objects = append(e.Objects, o)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// follow keeps one reflector running. The reflector's own retries wait for up
// to a minute after an API server restart; ours wait 3 s at the most.
func follow(ctx context.Context, k Kind, lw *cache.ListWatch, s *sink, log *logrus.Entry) {
	resource := string(k)
	r := cache.NewReflectorWithOptions(source{lw}, s.kind, s, cache.ReflectorOptions{Name: resource})
	retry := newBackoff()
	said := ""
	for ctx.Err() == nil {
		start := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > 10*time.Second {
			retry.Reset()
			said = ""
		}
		if err != nil && err.Error() != said { // once, and not with each try
			said = err.Error()
			log.WithField("resource", resource).Warnf("lost the API server, trying again: %v", err)
		}
		wait := retry.NextBackOff()
		if s.missing(err) {
			wait = optionalRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// source is what the reflector reads from.
type source struct{ *cache.ListWatch }

// ListWithContext implements cache.ListerWithContext. It reads the latest state,
// page by page, and keeps of each page only the fields that we use: all objects
// in full would take hundreds of megabytes in a large cluster.
func (s source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	list, _, err := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := s.ListWatch.ListWithContext(ctx, options)
		trim(page)
		return page, err
	}).List(ctx, options)
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext. It hides from the
// reflector that a connection was refused, which the reflector would wait for.
func (s source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListWatch.WatchWithContext(ctx, options)
	if utilnet.IsConnectionRefused(err) {
		return nil, errors.New(err.Error())
	}
	return w, err
}

// trim drops from each object of a list what nobody reads.
func trim(list runtime.Object) {
	switch l := list.(type) {
	case *corev1.PodList:
		for i, p := range l.Items {
			l.Items[i] = corev1.Pod{
				ObjectMeta: trimmed(p.ObjectMeta),
				Spec: corev1.PodSpec{
					NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
					Containers: withPorts(p.Spec.Containers), InitContainers: withPorts(p.Spec.InitContainers),
				},
				Status: corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
			}
			l.Items[i].Labels = p.Labels
		}
	case *corev1.NodeList:
		for i, n := range l.Items {
			l.Items[i] = corev1.Node{
				ObjectMeta: trimmed(n.ObjectMeta), Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
			}
		}
	case *corev1.NamespaceList:
		for i, n := range l.Items {
			l.Items[i] = corev1.Namespace{ObjectMeta: trimmed(n.ObjectMeta)}
			l.Items[i].Labels = n.Labels
		}
	case *networkingv1.ServiceCIDRList:
		for i := range l.Items {
			l.Items[i].ObjectMeta = trimmed(l.Items[i].ObjectMeta)
		}
	case *networkingv1.NetworkPolicyList:
		for i := range l.Items {
			l.Items[i].ObjectMeta = trimmed(l.Items[i].ObjectMeta)
		}
	case *corev1.ServiceList:
		for i := range l.Items {
			l.Items[i].ObjectMeta = trimmed(l.Items[i].ObjectMeta)
		}
	case *discoveryv1.EndpointSliceList:
		for i := range l.Items {
			l.Items[i].ObjectMeta = trimmed(l.Items[i].ObjectMeta)
		}
	}
}

// withPorts lists the containers that have ports with names, or of the host.
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

// usedLabels are those that the network depends on.
func usedLabels() []string {
	return []string{corev1.LabelTopologyZone, discoveryv1.LabelServiceName, names.LabelServiceProxy, names.LabelHeadless, names.LabelControlPlane}
}

// sink is where the reflector stores what it sees: it sends it on.
type sink struct {
	kind     runtime.Object
	send     func(Event)
	optional bool // whether all may go on without it
	known    bool // whether there was a Replace
}

// Add implements cache.ReflectorStore.
func (s *sink) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *sink) Update(obj any) error {
	o, err := s.check(obj)
	if err == nil {
		s.send(Event{Kind: s.kind, Object: o})
	}
	return err
}

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(obj any) error {
	o, err := s.check(obj)
	if err == nil {
		s.send(Event{Kind: s.kind, Object: o, Gone: true})
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(objs []any, _ string) error {
	s.known = true
	s.send(Event{Kind: s.kind, Replace: true, Objects: objs})
	return nil
}

// Resync implements cache.ReflectorStore: the receiver does its own.
func (s *sink) Resync() error { return nil }

func (s *sink) check(obj any) (runtime.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("watching %T: got a %T", s.kind, obj)
	}
	return o, nil
}
