package nbsync_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/test/policymodel"
)

// 1000 random changes end in the same rows as the last state applied at once to an empty database, as long as pods
// carry the annotations assigned to them.
func TestThePathDoesNotMatter(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			_, walked, s := open(t)
			if seed != 0 { // else each plan looks at all rows
				defer s.Follow(walked)()
			}
			r := rand.New(rand.NewPCG(seed, 1))
			w := desired.NewWorld()
			api := map[string]*corev1.Pod{}
			policies := walk{policymodel.Source{Rand: r}, map[string]any{}}
			services := serviceWalk{r, map[string]any{}}
			nodes := []int{0, 1, 2}
			w.Put(hosted(t, nodes...))
			dirty := map[nb.Unit]bool{topology.ClusterUnit: true, "node/n0": true, "node/n1": true, "node/n2": true}
			for i := range 1000 {
				mark(dirty, randomChange(t, r, w, api, &nodes))
				mark(dirty, policies.change(w))
				mark(dirty, services.change(w))
				if r.IntN(5) > 0 && i < 999 {
					continue // several changes form one transaction
				}
				mark(dirty, w.Allocate())
				draining := step(t, s, rowsOf(w, slices.Collect(maps.Keys(dirty))))
				if diff := nbsync.IndexDiff(s); diff != "" {
					t.Fatalf("step %d: the index differs from the cache (-cache +index):\n%s", i, diff)
				}
				clear(dirty)
				dirty[topology.ClusterUnit] = true // the commands record a topology, and the World does not report it
				mark(dirty, draining)
				for name, p := range api {
					if a, ok := w.Pods.Annotation(nb.Unit("pod/default/" + name)); ok {
						p.Annotations = map[string]string{names.Annotation: a.Addresses.Annotation()}
					}
				}
			}
			finish(t, s, rowsOf(w, slices.Collect(maps.Keys(dirty))))
			_, fresh, s2 := open(t)
			w2 := desired.NewWorld()
			w2.Put(hosted(t, nodes...))
			for _, p := range api {
				w2.Put(p)
			}
			for _, o := range policies.api {
				w2.Put(o)
			}
			for _, o := range services.api {
				w2.Put(o)
			}
			w2.Allocate()
			apply(t, s2, rowsOf(w2, w2.Units()))
			if diff := cmp.Diff(dump(fresh), dump(walked)); diff != "" {
				t.Errorf("(-at once +walked):\n%s", diff)
			}
		})
	}
}

func randomChange(t *testing.T, r *rand.Rand, w *desired.World, api map[string]*corev1.Pod, nodes *[]int) []nb.Unit {
	t.Helper()
	name := fmt.Sprint("p", r.IntN(40))
	p := api[name]
	switch {
	case r.IntN(40) == 0:
		*nodes = nil
		for n := range 4 {
			if r.IntN(5) > 0 {
				*nodes = append(*nodes, n)
			}
		}
		return w.Put(hosted(t, *nodes...))
	case p == nil:
		p = policymodel.Source{Rand: r}.Pod("default", name, fmt.Sprint("n", r.IntN(4)))
		p.UID = types.UID(fmt.Sprint(r.Int()))
		wantHostPorts(r, p)
		api[name] = p
		return w.Put(p)
	case r.IntN(4) == 0:
		p.Labels = policymodel.Source{Rand: r}.Labels()
		return w.Put(p)
	case r.IntN(3) == 0:
		p.Status.Phase = corev1.PodSucceeded
		return w.Put(p)
	default:
		delete(api, name)
		return w.Remove(p)
	}
}

// A walk changes namespaces and policies.
type walk struct {
	policymodel.Source
	api map[string]any // as they are now
}

func (k walk) change(w *desired.World) []nb.Unit {
	name := fmt.Sprint("policy", k.IntN(8))
	switch k.IntN(8) {
	case 0:
		n := k.Namespace("default")
		if k.IntN(2) == 0 {
			n.Annotations = map[string]string{names.ACLLogging: `{"allow": "info", "deny": "alert"}`}
		}
		k.api["namespace"] = n
		return w.Put(n)
	case 1:
		p := k.Policy("default", name)
		k.api[name] = p
		return w.Put(p)
	case 2:
		p := k.Policy("default", name)
		delete(k.api, name)
		return w.Remove(p)
	}
	return nil
}
