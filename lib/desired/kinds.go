package desired

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// A kind is a type of objects. Its functions return the units to compute again.
type kind struct {
	put func(*World, any) []nb.Unit
	// remove and replace are nil for objects from elsewhere than Kubernetes.
	remove  func(*World, types.NamespacedName) []nb.Unit
	replace func(*World, iter.Seq[any]) []nb.Unit
}

// kinds are the types of objects of a World.
var kinds = map[reflect.Type]kind{
	reflect.TypeFor[*corev1.Node](): manyAtOnce((*World).putNodes, (*World).nodeNames),
	reflect.TypeFor[*corev1.Pod]():  oneByOne((*World).putPodObject, (*World).removePodObject, (*World).podNames),
	reflect.TypeFor[*corev1.Namespace](): oneByOne((*World).putNamespace, func(w *World, name types.NamespacedName) []nb.Unit { return w.Policies.removeNamespace(name) },
		func(w *World) []types.NamespacedName { return w.Policies.namespaceNames() }),
	reflect.TypeFor[*corev1.Service](): oneByOne(
		func(w *World, o *corev1.Service) []nb.Unit { return w.Services.putServiceObject(o) },
		func(w *World, name types.NamespacedName) []nb.Unit { return w.Services.removeServiceObject(name) },
		func(w *World) []types.NamespacedName { return w.Services.serviceNames() },
	),
	reflect.TypeFor[*discoveryv1.EndpointSlice](): oneByOne(
		func(w *World, o *discoveryv1.EndpointSlice) []nb.Unit { return w.Services.putSlice(o) },
		func(w *World, name types.NamespacedName) []nb.Unit { return w.Services.removeSlice(name) },
		func(w *World) []types.NamespacedName { return w.Services.sliceNames() },
	),
	reflect.TypeFor[*networkingv1.NetworkPolicy](): oneByOne(
		func(w *World, o *networkingv1.NetworkPolicy) []nb.Unit { return w.Policies.putPolicy(o) },
		func(w *World, name types.NamespacedName) []nb.Unit { return w.Policies.removePolicy(name) },
		func(w *World) []types.NamespacedName { return w.Policies.policyNames() },
	),
	reflect.TypeFor[*networkingv1.ServiceCIDR](): oneByOne(func(w *World, o *networkingv1.ServiceCIDR) []nb.Unit {
		return w.factsChanged(w.facts.PutServiceCIDR(o))
	},
		func(w *World, name types.NamespacedName) []nb.Unit {
			return w.factsChanged(w.facts.RemoveServiceCIDR(name.Name))
		},
		func(w *World) []types.NamespacedName { return clusterWide(maps.Keys(w.Facts().CIDRs)) }),

	reflect.TypeFor[topology.Cluster]():   fact((*facts.Index).PutCluster),
	reflect.TypeFor[facts.Silent]():       fact((*facts.Index).PutSilent),
	reflect.TypeFor[facts.Registered]():   fact((*facts.Index).PutRegistered),
	reflect.TypeFor[facts.Declared]():     fact((*facts.Index).PutDeclared),
	reflect.TypeFor[facts.Protected]():    fact((*facts.Index).PutProtected),
	reflect.TypeFor[facts.Tunnels]():      fact((*facts.Index).PutTunnels),
	reflect.TypeFor[servicecidr.Ranges](): fact((*facts.Index).PutRanges),

	reflect.TypeFor[pod.Assignment]():         input(func(w *World, a pod.Assignment) []nb.Unit { return w.Pods.PutAssignment(a) }),
	reflect.TypeFor[pod.Marks]():              input(func(w *World, m pod.Marks) []nb.Unit { return w.Pods.PutMarks(m) }),
	reflect.TypeFor[loadbalancer.Selection](): input(func(w *World, s loadbalancer.Selection) []nb.Unit { return w.Services.putSelection(s) }),
}

// input is the kind of objects from elsewhere than Kubernetes.
func input[O any](put func(*World, O) []nb.Unit) kind {
	return kind{put: func(w *World, o any) []nb.Unit { return put(w, o.(O)) }}
}

// fact is the kind of an input of the facts.
func fact[O any](put func(*facts.Index, O) facts.Change) kind {
	return kind{put: func(w *World, o any) []nb.Unit { return w.factsChanged(put(w.facts, o.(O))) }}
}

// oneByOne is a kind of Kubernetes objects. known lists the names of those put and not removed.
func oneByOne[O metav1.Object](put func(*World, O) []nb.Unit, remove func(*World, types.NamespacedName) []nb.Unit, known func(*World) []types.NamespacedName) kind {
	return kind{
		put:    func(w *World, o any) []nb.Unit { return put(w, o.(O)) },
		remove: remove,
		replace: func(w *World, objs iter.Seq[any]) (touched []nb.Unit) {
			gone := setOf(known(w))
			for o := range objs {
				touched = append(touched, put(w, o.(O))...)
				delete(gone, nameOf(o.(O)))
			}
			for name := range gone {
				touched = append(touched, remove(w, name)...)
			}
			return touched
		},
	}
}

// manyAtOnce is a kind of Kubernetes objects. change puts some objects and removes others.
func manyAtOnce[O metav1.Object](change func(w *World, all []O, gone []types.NamespacedName) []nb.Unit, known func(*World) []types.NamespacedName) kind {
	return kind{
		put: func(w *World, o any) []nb.Unit { return change(w, []O{o.(O)}, nil) },
		remove: func(w *World, name types.NamespacedName) []nb.Unit {
			return change(w, nil, []types.NamespacedName{name})
		},
		replace: func(w *World, objs iter.Seq[any]) []nb.Unit {
			gone := setOf(known(w))
			var all []O
			for o := range objs {
				all = append(all, o.(O))
				delete(gone, nameOf(o.(O)))
			}
			return change(w, all, slices.Collect(maps.Keys(gone)))
		},
	}
}

func setOf(names []types.NamespacedName) map[types.NamespacedName]bool {
	out := make(map[types.NamespacedName]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// namesOf returns the names of keys.
func namesOf[K ~struct{ Namespace, Name string }](keys iter.Seq[K]) (out []types.NamespacedName) {
	for k := range keys {
		out = append(out, types.NamespacedName(k))
	}
	return out
}

// clusterWide returns names without a namespace.
func clusterWide(names iter.Seq[string]) (out []types.NamespacedName) {
	for name := range names {
		out = append(out, types.NamespacedName{Name: name})
	}
	return out
}

// kindOfObject returns the kind of an object. It panics if there is none.
func kindOfObject(o any) kind {
	k, ok := kinds[reflect.TypeOf(o)]
	if !ok {
		panic(fmt.Sprintf("desired: %T is no kind of objects", o))
	}
	return k
}

// Put records the latest version of an object of one of the kinds, and returns the units to compute again.
func (w *World) Put(obj any) []nb.Unit { return kindOfObject(obj).put(w, obj) }

// Remove removes a Kubernetes object, of which only the name is used, and returns the units to compute again.
func (w *World) Remove(obj any) []nb.Unit {
	return kindOfObject(obj).remove(w, nameOf(obj.(metav1.Object)))
}

// Replace records objs as all objects of the kind of example, and returns the units to compute again.
func (w *World) Replace(example any, objs iter.Seq[any]) []nb.Unit {
	return kindOfObject(example).replace(w, objs)
}
