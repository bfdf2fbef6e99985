package gateway

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
)

// An input is a kind of objects with effects on the parts of a node.
type input struct {
	object runtime.Object // an empty one
	record func(kube.Event) (parts []string)
	// awaited: until all objects of the kind are known, flows and rules of Services and hostPorts stay.
	awaited bool
	// node, unless empty, restricts the objects to those of a node. Without permission to read them there are none.
	node string
}

// inputs lists the kinds of objects that the helper reads from the API server.
func (e *engine) inputs() []input {
	return []input{
		{object: &corev1.Service{}, record: e.takeService, awaited: true},
		{object: &discoveryv1.EndpointSlice{}, record: e.takeService, awaited: true},
		{object: &corev1.Pod{}, record: e.takePods, awaited: true, node: e.node},
		{object: &corev1.Node{}, record: e.takeNodes},
		{object: &networkingv1.ServiceCIDR{}, record: e.takeCIDRs},
	}
}

func (i input) kind() kube.Kind { return kube.KindOf(i.object) }

// followObjects records changes of inputs until ctx ends.
func (e *engine) followObjects(ctx context.Context, cluster *kube.Cluster, inputs []input) {
	var all []kube.Subscription
	for _, i := range inputs {
		all = append(all, kube.Subscription{Kind: i.kind(), Node: i.node, Optional: i.node != "", Send: func(ev kube.Event) {
			e.send(func() []string { return i.record(ev) })
		}})
	}
	cluster.Follow(ctx, e.log, all...)
}

// listed records that all objects of a kind are known. It reports whether they were awaited.
func (e *engine) listed(k kube.Kind) bool {
	awaited := e.missing[k.Name]
	delete(e.missing, k.Name)
	return awaited
}

// takeService records changes of Services and of their endpoints.
func (e *engine) takeService(ev kube.Event) []string {
	var touched []nb.Unit
	switch {
	case ev.Replace:
		touched = e.world.Replace(ev.Kind.Object, ev.Objects)
		e.listed(ev.Kind)
	case ev.Gone:
		touched = e.world.Remove(ev.Object)
	default:
		touched = e.world.Put(ev.Object)
	}
	for _, u := range touched {
		delete(e.resolved, u)
		if s, ok := e.world.Services.Service(u); ok && s.Ours {
			e.resolved[u] = s
		}
	}
	return e.all()
}
