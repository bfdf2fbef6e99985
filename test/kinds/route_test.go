package kinds

import (
	"fmt"
	"iter"
	"net/netip"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/watcher"
)

// This file is a feature: a custom resource Route is a static route of the cluster's router.

const routeDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: routes.test.example.com}
spec:
  group: test.example.com
  scope: Cluster
  names: {plural: routes, singular: route, kind: Route}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {prefix: {type: string}, nextHop: {type: string}, note: {type: string}}
`

// A Route is an object of the custom resource.
type Route struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              RouteSpec `json:"spec"`
}

// A RouteSpec is the desired state of a Route.
type RouteSpec struct {
	Prefix  string `json:"prefix"`
	NextHop string `json:"nextHop"`
	Note    string `json:"note"` // no feature reads it
}

// A RouteList is a list of Routes.
type RouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Route `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (r *Route) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *RouteList) DeepCopyObject() runtime.Object {
	out := RouteList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, r := range l.Items {
		out.Items = append(out.Items, *r.DeepCopyObject().(*Route))
	}
	return &out
}

// routeExtension has all a watcher needs of the feature: the line of its kind, and its World.
func routeExtension(seen *routesSeen) watcher.Extension {
	k := kube.NewKind("routes", func(r *Route) Route {
		return Route{ObjectMeta: kube.KeepMeta(r.ObjectMeta), Spec: RouteSpec{Prefix: r.Spec.Prefix, NextHop: r.Spec.NextHop}}
	})
	k.AddToScheme = func(s *runtime.Scheme) error {
		gv := schema.GroupVersion{Group: "test.example.com", Version: "v1"}
		s.AddKnownTypes(gv, &Route{}, &RouteList{})
		metav1.AddToGroupVersion(s, gv)
		return nil
	}
	return watcher.Extension{Kinds: []kube.Kind{k}, New: func() watcher.World { return &routes{map[nb.Unit]*Route{}, seen} }}
}

// routesSeen are the objects received by the feature.
type routesSeen struct {
	mu  sync.Mutex
	all []*Route
}

func (s *routesSeen) add(r *Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
}

// routes is the World of Routes.
type routes struct {
	all  map[nb.Unit]*Route
	seen *routesSeen
}

const routePrefix = "route/"

func routeUnit(o any) nb.Unit { return nb.Unit(routePrefix + nameOf(o)) }

// Put implements watcher.World.
func (r *routes) Put(o any) []nb.Unit {
	r.seen.add(o.(*Route))
	r.all[routeUnit(o)] = o.(*Route)
	return []nb.Unit{routeUnit(o)}
}

// Remove implements watcher.World.
func (r *routes) Remove(o any) []nb.Unit {
	delete(r.all, routeUnit(o))
	return []nb.Unit{routeUnit(o)}
}

// Replace implements watcher.World.
func (r *routes) Replace(_ any, all iter.Seq[any]) (touched []nb.Unit) {
	touched = r.Units()
	clear(r.all)
	for o := range all {
		touched = append(touched, r.Put(o)...)
	}
	return touched
}

// Allocate implements watcher.World.
func (r *routes) Allocate() []nb.Unit { return nil }

// Units implements watcher.World.
func (r *routes) Units() (units []nb.Unit) {
	for u := range r.all {
		units = append(units, u)
	}
	return units
}

// Owns implements watcher.World.
func (r *routes) Owns(u nb.Unit) bool {
	return len(u) > len(routePrefix) && u[:len(routePrefix)] == routePrefix
}

// Rows implements watcher.World.
func (r *routes) Rows(u nb.Unit) ([]nb.Row, error) {
	o := r.all[u]
	if o == nil {
		return nil, nil
	}
	if _, err := netip.ParsePrefix(o.Spec.Prefix); err != nil {
		return nil, &feature.Problem{Reason: "BadRoute", Message: fmt.Sprintf("prefix %q of route %s is no prefix: give one such as 192.0.2.0/24", o.Spec.Prefix, o.Name)}
	}
	return []nb.Row{{
		Table: nbdb.LogicalRouterStaticRouteTable, ID: "test/" + o.Name, Model: &nbdb.LogicalRouterStaticRoute{IPPrefix: o.Spec.Prefix, Nexthop: o.Spec.NextHop},
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.ClusterRouter, Column: "static_routes"}},
	}}, nil
}

// Object implements watcher.World.
func (r *routes) Object(u nb.Unit) runtime.Object {
	if o := r.all[u]; o != nil {
		return &Route{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID}}
	}
	return nil
}
