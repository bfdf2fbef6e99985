// Package nodes numbers the nodes of a cluster: from the Nodes of Kubernetes and the record of the topology it computes
// the record as it should be, and the annotations of each Node.
package nodes

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// An Index has the latest version of each Node and of the record. One goroutine calls it. A node's unit is
// topology.NodeUnit.
type Index struct {
	subnets *nodesubnet.Allocator
	nodes   map[string]*node
	record  topology.Cluster
	older   membership.OlderJoin
	owners  owners
	listed  bool                        // all Nodes are known: until then nothing is given, and nothing taken
	refused map[string]*feature.Problem // claims, by node
}

// A node is a Node as far as it is read.
type node struct {
	uid         string
	created     int64
	annotations map[string]string // those of annotations()
	addrs       []netip.Addr
	claim       nodeclaim.Claim
	invalid     *feature.Problem  // about claim
	written     map[string]string // annotations that the next events will have; nil: none
}

// annotations are the annotations that are read.
func annotations() []string {
	return []string{names.HostSubnetAnnotation, names.SubnetsAnnotation, names.ChassisAnnotation, names.GatewayAnnotation}
}

// New returns an Index without Nodes. The record is that of Numbering.Begin; nodes in it keep their subnets if they exist.
// Gateways of an older release keep their join addresses.
func New(ranges nodesubnet.Ranges, record topology.Cluster, older membership.OlderJoin) *Index {
	x := &Index{
		subnets: nodesubnet.New(ranges), nodes: map[string]*node{}, record: record, older: older, owners: owners{},
		refused: map[string]*feature.Problem{},
	}
	x.subnets.Restore(record.Nodes, record.NextSubnets)
	return x
}

// Put records a Node, and returns its unit if it differs in something that counts.
func (x *Index) Put(o *corev1.Node) []nb.Unit {
	n := read(o)
	old := x.nodes[o.Name]
	if old != nil && old.uid == n.uid && old.created == n.created && maps.Equal(old.annotations, n.annotations) && slices.Equal(old.addrs, n.addrs) {
		return nil
	}
	if old != nil {
		if old.uid != n.uid { // it was deleted meanwhile
			x.Remove(o.Name)
		} else if maps.Equal(old.annotations, n.annotations) {
			n.written = old.written
		}
		x.owners.remove(o.Name, old.addrs)
	}
	wish, err := nodesubnet.ParseAnnotations(n.annotations)
	x.subnets.Put(nodesubnet.Node{Name: o.Name, Created: n.created, Wish: wish, Invalid: err})
	x.owners.add(o.Name, n.addrs)
	x.nodes[o.Name] = n
	return []nb.Unit{topology.NodeUnit(o.Name)}
}

func read(o *corev1.Node) *node {
	n := &node{uid: string(o.UID), created: o.CreationTimestamp.Unix(), annotations: map[string]string{}}
	for _, key := range annotations() {
		if v, ok := o.Annotations[key]; ok {
			n.annotations[key] = v
		}
	}
	n.addrs, _ = facts.Reported(o.Status.Addresses)
	var err error
	if n.claim, err = nodeclaim.Parse(o.Name, n.annotations); err != nil {
		n.invalid = &feature.Problem{Reason: badClaim, Message: err.Error()}
	}
	return n
}

// Remove forgets a Node. Its subnets are free; other Nodes get them last.
func (x *Index) Remove(name string) []nb.Unit {
	n := x.nodes[name]
	if n == nil {
		return nil
	}
	x.subnets.Remove(name)
	x.owners.remove(name, n.addrs)
	delete(x.nodes, name)
	delete(x.refused, name)
	return []nb.Unit{topology.NodeUnit(name)}
}

// Replace records the list of all Nodes.
func (x *Index) Replace(all iter.Seq[any]) (touched []nb.Unit) {
	present := map[string]bool{}
	for o := range all {
		if n, ok := o.(*corev1.Node); ok {
			present[n.Name] = true
			touched = append(touched, x.Put(n)...)
		}
	}
	for name := range x.nodes {
		if !present[name] {
			touched = append(touched, x.Remove(name)...)
		}
	}
	if !x.listed {
		x.listed = true
		return x.All()
	}
	return touched
}

// Record records the record as it is in the database, and returns the units of nodes that differ in it.
func (x *Index) Record(c topology.Cluster) (touched []nb.Unit) {
	was := x.record
	x.record = c
	touched = different(touched, was.Nodes, c.Nodes, slices.Equal)
	touched = different(touched, was.Chassis, c.Chassis, func(a, b string) bool { return a == b })
	return different(touched, was.Gateways, c.Gateways, topology.Gateway.Equal)
}

// different appends the units of the keys with different values.
func different[V any](units []nb.Unit, a, b map[string]V, equal func(V, V) bool) []nb.Unit {
	for name, v := range a {
		if w, ok := b[name]; !ok || !equal(v, w) {
			units = append(units, topology.NodeUnit(name))
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			units = append(units, topology.NodeUnit(name))
		}
	}
	return units
}

// All lists the units of all Nodes, and of all nodes in the record.
func (x *Index) All() (units []nb.Unit) {
	for name := range x.nodes {
		units = append(units, topology.NodeUnit(name))
	}
	for name := range x.record.Nodes {
		if x.nodes[name] == nil {
			units = append(units, topology.NodeUnit(name))
		}
	}
	return units
}

// A Step is the work for some nodes.
type Step struct {
	Units          []nb.Unit         // of the nodes looked at
	Changed        []nb.Unit         // of those with another part of the record
	Before, Record topology.Cluster  // as it is, and as it should be
	Patches        []Patch           // to write after the record
	Problems       map[nb.Unit]error // for Events
}

// A Patch has the annotations to change of one Node; "" means to remove one.
type Patch struct {
	Name, UID   string
	Annotations map[string]string
}

// Next computes the work for dirty nodes, and for those that their changes affect. Before all Nodes are known there is
// none. It costs the nodes concerned, and only if the record changes, a copy of its keys. Nodes in blocked stay as they are.
func (x *Index) Next(dirty []nb.Unit, blocked map[nb.Unit]error) Step {
	s := Step{Before: x.record, Record: x.record, Problems: map[nb.Unit]error{}}
	if !x.listed {
		return s
	}
	touched := map[string]bool{}
	for _, u := range dirty {
		if name, ok := topology.NodeOf(u); ok {
			touched[name] = true
		}
	}
	for _, name := range x.subnets.Allocate() {
		touched[name] = true
	}
	for name := range x.refused { // another node may have given way
		touched[name] = true
	}
	e := editor{Cluster: x.record, index: x}
	var free []string
	for _, name := range x.oldestFirst(touched) {
		u := topology.NodeUnit(name)
		s.Units = append(s.Units, u)
		if err := blocked[u]; err != nil {
			s.Problems[u] = err
			continue
		}
		free = append(free, name)
	}
	s.Changed = e.updateAll(free)
	for _, name := range free {
		if p := x.problem(name); p != nil {
			s.Problems[topology.NodeUnit(name)] = p
		}
		if p, ok := x.patch(name); ok {
			s.Patches = append(s.Patches, p)
		}
	}
	s.Record = e.finish()
	return s
}

// oldestFirst orders nodes: first those that are gone, then by age.
func (x *Index) oldestFirst(all map[string]bool) []string {
	age := func(name string) int64 {
		if n := x.nodes[name]; n != nil {
			return max(1, n.created)
		}
		return 0
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(age(a), age(b)), cmp.Compare(a, b)) })
}

// problem is the reason why a node lacks something, or nil.
func (x *Index) problem(name string) *feature.Problem {
	n := x.nodes[name]
	if n == nil {
		return nil
	}
	if p := x.subnets.Problem(name); p != nil {
		return p
	}
	if n.invalid != nil {
		return n.invalid
	}
	return x.refused[name]
}

// patch returns the annotations of a Node to write; false: they are as they should be, or will be.
func (x *Index) patch(name string) (Patch, bool) {
	n := x.nodes[name]
	if n == nil {
		return Patch{}, false
	}
	want := map[string]string{names.HostSubnetAnnotation: "", names.SubnetsAnnotation: ""}
	if subnets := x.subnets.Subnets(name); len(subnets) > 0 {
		want = nodesubnet.Annotations(subnets)
	}
	has := func(have map[string]string) bool {
		for key, v := range want {
			if old, ok := have[key]; old != v || ok && v == "" {
				return false
			}
		}
		return true
	}
	if has(n.annotations) || n.written != nil && maps.Equal(n.written, want) {
		return Patch{}, false
	}
	return Patch{name, n.uid, want}, true
}

// Written records that a patch was written: until an event shows other annotations, it is not written again.
func (x *Index) Written(p Patch) {
	if n := x.nodes[p.Name]; n != nil && n.uid == p.UID {
		n.written = p.Annotations
	}
}

// owners are the Nodes that report an address.
type owners map[netip.Addr][]string

func (o owners) add(name string, addrs []netip.Addr) {
	for _, a := range addrs {
		o[a] = append(o[a], name)
	}
}

func (o owners) remove(name string, addrs []netip.Addr) {
	for _, a := range addrs {
		o[a] = slices.DeleteFunc(o[a], func(other string) bool { return other == name })
		if len(o[a]) == 0 {
			delete(o, a)
		}
	}
}

// owner returns the oldest Node that reports an address, "" if nobody does. Others do not get it by reporting it.
func (x *Index) owner(a netip.Addr) string {
	all := x.owners[a]
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(x.nodes[a].created, x.nodes[b].created), cmp.Compare(a, b))
	})
}
