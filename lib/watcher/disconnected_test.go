package watcher

import (
	"fmt"
	"maps"
	"testing"

	"ovn-k8s/lib/desired/facts"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An Event about a pod without an interface is written once, also where many more pods lose theirs later.
func TestDisconnectedPodsAreToldOnce(t *testing.T) {
	e := apart(t)
	c := largeTopology(t, 1)
	var node string
	for node = range c.Nodes {
	}
	e.world.Put(c.WithChassis(node, "chassis"))
	e.world.Put(facts.Registered{"chassis": true})
	down := map[string]bool{}
	add := func(prefix string, count int) {
		ip := c.Nodes[node][0].Addr()
		for i := range count {
			name := fmt.Sprintf("%s%03d", prefix, i)
			ip = ip.Next()
			e.world.Put(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node},
				Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip.String()}}},
			})
			down["default_"+name] = true
		}
	}
	add("z", 50)
	e.tellDisconnected(down)
	first := maps.Clone(e.disconnected)
	add("a", mismatchBatch+10)
	for _, want := range []int{50 + mismatchBatch, 60 + mismatchBatch} {
		e.tellDisconnected(down)
		if len(first) != 50 || len(e.disconnected) != want {
			t.Errorf("%d pods at first, then %d, want %d", len(first), len(e.disconnected), want)
		}
		for u := range first {
			if !e.disconnected[u] {
				t.Fatalf("%s is forgotten, so that it would be told again", u)
			}
		}
	}
}
