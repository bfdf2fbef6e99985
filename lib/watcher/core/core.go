// Package core is lib/desired as the World of a watcher's engine.
package core

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

// A World implements watcher.ClusterWorld.
type World struct{ *desired.World }

// New returns an empty World.
func New() World { return World{desired.NewWorld()} }

// Compare implements watcher.ClusterWorld.
func (n World) Compare(a, b nb.Unit) int { return desired.Compare(a, b) }

// Related implements watcher.ClusterWorld.
func (n World) Related(u nb.Unit) bool { return desired.Related(u) }

// Pod implements watcher.ClusterWorld.
func (n World) Pod(u nb.Unit) (pod.Pod, bool) { return n.Pods.Pod(u) }

// Annotation implements watcher.ClusterWorld.
func (n World) Annotation(u nb.Unit) (pod.Annotation, bool) { return n.Pods.Annotation(u) }

// Mismatch implements watcher.ClusterWorld.
func (n World) Mismatch(u nb.Unit) *feature.Problem { return n.Pods.Mismatch(u) }

// Service implements watcher.ClusterWorld.
func (n World) Service(u nb.Unit) (service.Resolved, bool) { return n.Services.Service(u) }

// ShowPolicies implements watcher.ClusterWorld.
func (n World) ShowPolicies(u nb.Unit) (string, error) { return n.Policies.Show(u) }

// ServiceSummaries implements watcher.ClusterWorld.
func (n World) ServiceSummaries(u nb.Unit) []loadbalancer.Summary {
	return n.Services.ServiceSummaries(u)
}

// AnsweredBy implements watcher.ClusterWorld.
func (n World) AnsweredBy(gateway string) []netip.Addr { return n.Answers.AnsweredBy(gateway) }

// Owns implements watcher.World.
func (n World) Owns(u nb.Unit) bool { return desired.Known(u) }

// Object implements watcher.World.
func (n World) Object(u nb.Unit) runtime.Object {
	if name, ok := topology.NodeOf(u); ok {
		return kube.Node(name)
	}
	if name, ok := topology.HostOf(u); ok {
		return kube.Node(name)
	}
	if s, ok := n.Services.Service(u); ok {
		return &corev1.Service{ObjectMeta: meta(s.Namespace, s.Name, s.UID)}
	}
	if p, ok := n.Policies.Policy(u); ok {
		return &networkingv1.NetworkPolicy{ObjectMeta: meta(p.Namespace, p.Name, p.UID)}
	}
	if name, _ := n.Facts().BadServiceCIDR(); u == servicecidr.Unit && name != "" {
		return &networkingv1.ServiceCIDR{ObjectMeta: meta("", name, "")}
	}
	if p, ok := n.Pods.Pod(u); ok {
		return &corev1.Pod{ObjectMeta: meta(p.Namespace, p.Name, p.UID)}
	}
	return nil
}

func meta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
}
