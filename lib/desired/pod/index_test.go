package pod

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

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

// Nodes never registered again are forgotten, with their static pods. The latest ones are kept.
func TestNodesWithStaticPodsAreForgotten(t *testing.T) {
	f := facts.NewIndex()
	x := NewIndex(f, Additions{Changed: func(Pod, Pod) []nb.Unit { return nil }})
	const nodes = 2 * maxGone
	for i := range nodes {
		name := fmt.Sprint("n", i)
		x.FactsChanged(f.PutCluster(topology.Cluster{Nodes: map[string][]netip.Prefix{name: {netip.MustParsePrefix("10.0.1.0/24")}}}))
		p := Pod{Key: Key{"default", "etcd-" + name}, UID: "u", Node: name, NeedsPort: true, Static: "hash"}
		x.Put(p)
		x.Allocate()
		x.Remove(p.Key)
	}
	x.FactsChanged(f.PutCluster(topology.Cluster{}))
	if n := len(x.nodes); n != maxGone || len(x.gone) != n || x.nodes[fmt.Sprint("n", nodes-1)] == nil {
		t.Errorf("%d nodes are remembered, %d of them gone, want the latest %d", n, len(x.gone), maxGone)
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

// Issue 14, line 5: each event of a pod brings its texts again. The index keeps one copy.
func TestPodsKeepOneCopyOfTheirTexts(t *testing.T) {
	x := newIndex("10.0.1.0/24")
	again := func(name string) Pod {
		text := strings.Clone
		return Pod{
			Key: Key{text("default"), text(name)}, UID: text("u"), Node: text("n1"), NeedsPort: true, AnnotationUID: text("u"),
		}
	}
	a, b := again("a"), again("b")
	x.Put(a)
	x.Put(b)
	x.Allocate()
	x.Put(again("a"))
	x.Put(again("b"))
	p, q := x.all[a.Key], x.all[b.Key]
	for what, texts := range map[string][2]string{
		"name": {p.Name, a.Name}, "namespace": {p.Namespace, a.Namespace}, "UID": {p.UID, a.UID}, "UID of the annotation": {p.AnnotationUID, p.UID}, "node": {p.Node, q.Node},
	} {
		if texts[0] != texts[1] || unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("two copies of a pod's %s, or another one", what)
		}
	}
	if &p.addrs.Gateways[0] != &q.addrs.Gateways[0] {
		t.Error("two pods of a node have a list of gateways each")
	}
}
