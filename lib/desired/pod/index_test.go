package pod

import (
	"fmt"
	"net/netip"
	"testing"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// newIndex returns an index of a cluster with the node n1.
func newIndex(subnet string) *Index {
	f := facts.NewIndex()
	x := NewIndex(f, Additions{Changed: func(Pod, Pod) []nb.Unit { return nil }})
	x.FactsChanged(f.PutCluster(topology.Cluster{Nodes: map[string][]netip.Prefix{"n1": {netip.MustParsePrefix(subnet)}}}))
	return x
}

// Mirrors of static pods that are never created again are removed.
func TestMirrorsAreForgotten(t *testing.T) {
	x := newIndex("10.0.1.0/24")
	for i := range 1000 {
		p := Pod{Key: Key{"default", fmt.Sprint("gone", i)}, UID: "u", Node: "n1", NeedsPort: true, Static: "hash"}
		x.Put(p)
		x.Allocate()
		x.Remove(p.Key)
	}
	if n := len(x.nodes["n1"].static); n != maxStatic {
		t.Errorf("%d mirrors are remembered, not %d", n, maxStatic)
	}
}

// Nothing is left of removed pods, also of those without addresses.
func TestNothingIsLeftOfRemovedPods(t *testing.T) {
	x := newIndex("10.0.1.8/29")
	key := func(i int) Key { return Key{"default", fmt.Sprint("p", i)} }
	for i := range 100 {
		x.Put(Pod{Key: key(i), UID: "u", Node: []string{"n1", "nowhere"}[i%2], NeedsPort: true})
		if i < 90 { // the others are not even allocated
			x.Allocate()
		}
	}
	for i := range 100 {
		x.Remove(key(i))
	}
	x.Allocate()
	n := x.nodes["n1"]
	if left := len(n.queue) + len(n.fresh) + len(n.pods) + len(n.pool.held) + x.Len(); left != 0 || x.nodes["nowhere"] != nil {
		t.Errorf("left: %+v, %v", n, x.nodes["nowhere"])
	}
}
