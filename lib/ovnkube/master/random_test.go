package master_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
)

// A master that ends at any moment leaves nothing behind: after the next start each Node has subnets of its own, those
// that were given stay, and no row of a Node that is gone is left.
func TestRandomEnds(t *testing.T) {
	const ranges, rounds = "10.0.0.0/20/24", 20
	n := newNetwork(t)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	given := map[string]string{}
	nodes := map[string]bool{}
	for range rounds {
		m := n.start(ranges, false)
		for range 4 {
			name := fmt.Sprint("n", r.IntN(8))
			if nodes[name] {
				n.delete(name)
				delete(given, name)
			} else {
				n.node(name, nil)
			}
			nodes[name] = !nodes[name]
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) // any moment
		m.stop()
		for name, s := range n.annotated() {
			if old := given[name]; old != "" && old != s {
				t.Errorf("node %s had %s, and has %s", name, old, s)
			}
			given[name] = s
		}
	}
	n.start(ranges, false)
	n.node("last", nil)
	eventually(t, "all Nodes have subnets", func() bool {
		list, err := cluster.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		must(t, err)
		return len(n.annotated()) == len(list.Items)
	})
	owner := map[string]string{}
	for name, s := range n.annotated() {
		if other := owner[s]; other != "" || given[name] != "" && given[name] != s {
			t.Errorf("node %s has %s, which it had as %s, and %s has", name, s, given[name], other)
		}
		owner[s] = name
		if got := n.find("Logical_Switch", "other_config", "name="+name); got != "subnet="+s {
			t.Errorf("the switch of %s has %q, want %s", name, got, s)
		}
	}
	if got := len(n.annotated()); len(owner) != got {
		t.Errorf("%d Nodes have %d subnets", got, len(owner))
	}
	known := slices.Collect(maps.Values(owner))
	for _, port := range strings.Fields(n.find("Logical_Router_Port", "name")) {
		if name, ok := strings.CutPrefix(port, names.RouterToSwitch("")); ok && !slices.Contains(known, name) {
			t.Errorf("port %s is left", port)
		}
	}
}

// annotated are the subnets in the annotations of Nodes, by name.
func (n *network) annotated() map[string]string {
	n.Helper()
	list, err := cluster.Client().CoreV1().Nodes().List(n.Context(), metav1.ListOptions{})
	must(n.T, err)
	out := map[string]string{}
	for _, node := range list.Items {
		if s := node.Annotations[names.HostSubnetAnnotation]; s != "" {
			out[node.Name] = s
		}
	}
	return out
}
