package watcher

import (
	"iter"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/failures"
	"ovn-k8s/lib/watcher/show"
)

// A World holds the latest version of every object of some kinds, and computes the rows of units. One goroutine calls
// it.
type World interface {
	// Put records an object, Remove removes one, and Replace replaces all objects of the kind of example. They return
	// the units to compute again. Objects have the fields kept by their kind, and must not be changed.
	Put(obj any) []nb.Unit
	Remove(obj any) []nb.Unit
	Replace(example any, all iter.Seq[any]) []nb.Unit
	// Allocate assigns resources to waiting units, such as addresses to pods, and returns the units with other rows.
	Allocate() []nb.Unit
	// Units lists the units with rows or errors.
	Units() []nb.Unit
	// Owns reports whether u is a unit of this World, even if it has no rows any more.
	Owns(u nb.Unit) bool
	// Rows returns the desired rows of a unit, and an error if some are missing: a *feature.Problem has the reason of
	// an Event.
	Rows(u nb.Unit) ([]nb.Row, error)
	// Object returns the object for Events about a unit, with its type, name and UID; nil if there is none.
	Object(u nb.Unit) runtime.Object
}

// An Extension adds kinds of objects to a watcher, and their rows.
type Extension struct {
	// Kinds are the kinds of objects of the World. Those of the table have the fields kept by the table.
	Kinds []kube.Kind
	// New returns an empty World of these kinds.
	New func() World
}

// moreKinds are the kinds of extensions missing in the table.
func moreKinds(extensions []Extension) (more []kube.Kind) {
	for _, x := range extensions {
		for _, k := range x.Kinds {
			if !slices.ContainsFunc(append(kube.Kinds(), more...), func(o kube.Kind) bool { return o.Is(k.Object) }) {
				more = append(more, k)
			}
		}
	}
	return more
}

// worlds is the World of the network and of extensions.
type worlds []member

// A member is a World and the types of its objects.
type member struct {
	World
	takes map[reflect.Type]bool
}

func newWorlds(network World, extensions []Extension) worlds {
	w := worlds{newMember(network, kube.Kinds())}
	for _, x := range extensions {
		w = append(w, newMember(x.New(), x.Kinds))
	}
	return w
}

func newMember(w World, kinds []kube.Kind) member {
	m := member{w, map[reflect.Type]bool{}}
	for _, k := range kinds {
		m.takes[reflect.TypeOf(k.Object)] = true
	}
	return m
}

// each calls f for each World with objects like example.
func (w worlds) each(example any, f func(World) []nb.Unit) (touched []nb.Unit) {
	for _, m := range w {
		if m.takes[reflect.TypeOf(example)] {
			touched = append(touched, f(m)...)
		}
	}
	return touched
}

// owner is the World of a unit, nil if there is none.
func (w worlds) owner(u nb.Unit) World {
	for _, m := range w {
		if m.Owns(u) {
			return m
		}
	}
	return nil
}

// Put implements World.
func (w worlds) Put(obj any) []nb.Unit {
	return w.each(obj, func(m World) []nb.Unit { return m.Put(obj) })
}

// Remove implements World.
func (w worlds) Remove(obj any) []nb.Unit {
	return w.each(obj, func(m World) []nb.Unit { return m.Remove(obj) })
}

// Replace implements World.
func (w worlds) Replace(example any, all iter.Seq[any]) []nb.Unit {
	return w.each(example, func(m World) []nb.Unit { return m.Replace(example, all) })
}

// Allocate implements World.
func (w worlds) Allocate() (touched []nb.Unit) {
	for _, m := range w {
		touched = append(touched, m.Allocate()...)
	}
	return touched
}

// Units implements World.
func (w worlds) Units() (units []nb.Unit) {
	for _, m := range w {
		units = append(units, m.Units()...)
	}
	return units
}

// Owns implements World.
func (w worlds) Owns(u nb.Unit) bool { return w.owner(u) != nil }

// Rows implements World.
func (w worlds) Rows(u nb.Unit) ([]nb.Row, error) {
	if m := w.owner(u); m != nil {
		return m.Rows(u)
	}
	return nil, nil
}

// Object implements World.
func (w worlds) Object(u nb.Unit) runtime.Object {
	if m := w.owner(u); m != nil {
		return m.Object(u)
	}
	return nil
}

// A ClusterWorld is the World of the kinds of the cluster, with the state for gateways, annotations and commands.
type ClusterWorld interface {
	World
	show.World
	failures.World
	// Compare orders units by their dependencies. Related are those to change with units before them.
	Compare(a, b nb.Unit) int
	Related(nb.Unit) bool
	// Size is the load of ovn-northd in ports, see package pace.
	Size() int
	// Compact releases the memory of removed objects.
	Compact()
}
