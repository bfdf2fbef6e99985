package desired

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/nb"
)

// allKinds returns the kinds of objects of the facts and of all features, by type.
func (w *World) allKinds() map[reflect.Type][]kind.Kind {
	out := map[reflect.Type][]kind.Kind{}
	add := func(kinds []kind.Kind) {
		for _, k := range kinds {
			out[k.Type] = append(out[k.Type], k)
		}
	}
	add(w.facts.Kinds(w.factsChanged))
	for _, f := range w.features {
		if r, ok := f.(feature.Reader); ok {
			add(r.Kinds())
		}
	}
	return out
}

// kindsOf returns the kinds of an object. It panics if there are none.
func (w *World) kindsOf(o any) []kind.Kind {
	kinds, ok := w.kinds[reflect.TypeOf(o)]
	if !ok {
		panic(fmt.Sprintf("desired: %T is no kind of objects", o))
	}
	return kinds
}

// Put records the latest version of an object of one of the kinds, and returns the units to compute again.
func (w *World) Put(obj any) (touched []nb.Unit) {
	objs := slices.Values([]any{obj})
	for _, k := range w.kindsOf(obj) {
		touched = append(touched, k.Change(objs, func() []types.NamespacedName { return nil })...)
	}
	return touched
}

// Remove removes a Kubernetes object, of which only the name is used, and returns the units to compute again.
func (w *World) Remove(obj any) (touched []nb.Unit) {
	gone := []types.NamespacedName{kind.Name(obj.(metav1.Object))}
	for _, k := range w.kindsOf(obj) {
		touched = append(touched, k.Change(slices.Values([]any(nil)), func() []types.NamespacedName { return gone })...)
	}
	return touched
}

// Replace records objs as all objects of the kind of example, and returns the units to compute again. It goes through
// objs once for each feature that reads them.
func (w *World) Replace(example any, objs iter.Seq[any]) (touched []nb.Unit) {
	for _, k := range w.kindsOf(example) {
		touched = append(touched, replace(k, objs)...)
	}
	return touched
}

// replace records objs as all objects of a kind.
func replace(k kind.Kind, objs iter.Seq[any]) []nb.Unit {
	gone := map[types.NamespacedName]bool{}
	if k.Names != nil {
		for _, name := range k.Names() {
			gone[name] = true
		}
	}
	present := func(yield func(any) bool) {
		for o := range objs {
			delete(gone, kind.Name(o.(metav1.Object)))
			if !yield(o) {
				return
			}
		}
	}
	return k.Change(present, func() []types.NamespacedName { return slices.Collect(maps.Keys(gone)) })
}
