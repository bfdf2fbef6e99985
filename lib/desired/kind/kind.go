// Package kind has the shape of a kind of objects: functions to record objects of one type, and to forget them.
package kind

import (
	"iter"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/nb"
)

// A Kind is a type of objects, as one feature reads them. Several features may read objects of one type.
type Kind struct {
	Type reflect.Type
	// Change records the latest versions of some objects, forgets those with the names gone, and returns the units to
	// compute again. It calls gone once it has gone through objs.
	Change func(objs iter.Seq[any], gone func() []types.NamespacedName) []nb.Unit
	// Names lists the objects recorded and not forgotten; nil: none is ever forgotten.
	Names func() []types.NamespacedName
}

// Input is a kind of objects that are replaced and never forgotten.
func Input[O any](put func(O) []nb.Unit) Kind {
	return Kind{Type: reflect.TypeFor[O](), Change: func(objs iter.Seq[any], _ func() []types.NamespacedName) (touched []nb.Unit) {
		for o := range objs {
			touched = append(touched, put(o.(O))...)
		}
		return touched
	}}
}

// OneByOne is a kind of Kubernetes objects.
func OneByOne[O metav1.Object](put func(O) []nb.Unit, remove func(types.NamespacedName) []nb.Unit, names func() []types.NamespacedName) Kind {
	k := Input(put)
	puts := k.Change
	k.Names = names
	k.Change = func(objs iter.Seq[any], gone func() []types.NamespacedName) []nb.Unit {
		touched := puts(objs, nil)
		for _, name := range gone() {
			touched = append(touched, remove(name)...)
		}
		return touched
	}
	return k
}

// Together is a kind of Kubernetes objects for which several changes at once cost less than one by one.
func Together[O metav1.Object](change func(objs []O, gone []types.NamespacedName) []nb.Unit, names func() []types.NamespacedName) Kind {
	return Kind{reflect.TypeFor[O](), func(objs iter.Seq[any], gone func() []types.NamespacedName) []nb.Unit {
		var all []O
		for o := range objs {
			all = append(all, o.(O))
		}
		return change(all, gone())
	}, names}
}

// Name is the name of an object.
func Name(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Names returns the names of keys.
func Names[K ~struct{ Namespace, Name string }](keys iter.Seq[K]) (out []types.NamespacedName) {
	for k := range keys {
		out = append(out, types.NamespacedName(k))
	}
	return out
}

// ClusterWide returns names without a namespace.
func ClusterWide(names iter.Seq[string]) (out []types.NamespacedName) {
	for name := range names {
		out = append(out, types.NamespacedName{Name: name})
	}
	return out
}
