package annotations

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/kube/client"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// T4: an annotation overwritten during the watcher's own patch is written again.
func TestAnAnnotationOverwrittenDuringAPatch(t *testing.T) {
	w := desired.NewWorld()
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.WithNode("node1", []netip.Prefix{netip.MustParsePrefix("192.168.2.0/24")}); err != nil {
		t.Fatal(err)
	}
	n := New(nil, w.Pods, func(func() []nb.Unit) {})
	put := func(version, annotation string) {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u", ResourceVersion: version, Annotations: map[string]string{names.Annotation: annotation}},
			Spec:       corev1.PodSpec{NodeName: "node1"},
		}
		n.Overlay(p)
		w.Put(p)
	}
	w.Put(c)
	put("10", "")
	w.Allocate()
	const unit = nb.Unit("pod/default/a")
	want := func() {
		t.Helper()
		a, ok := w.Pods.Annotation(unit)
		if !ok {
			t.Fatal("no address")
		}
		if err := n.Want(unit, a); err != nil {
			t.Fatal(err)
		}
	}
	want()
	j, _ := n.jobs.take(t.Context())
	put("12", "overwritten") // after the patch, with version 11, but before its answer
	want()
	if again := n.done(j, 11, nil); len(again) != 1 {
		t.Fatalf("the end of the patch touches %v", again)
	}
	want()
	if _, ok := n.jobs.take(t.Context()); !ok || n.notes[j.key] == nil || n.notes[j.key].version != 0 {
		t.Error("the annotation is not written again")
	}

	// An object older than the patch is no reason for another one.
	j.note = n.notes[j.key]
	put("13", "older")
	if again := n.done(j, 14, nil); len(again) != 0 {
		t.Errorf("the end of the patch touches %v though its event is on its way", again)
	}
}

// T1: a process that was frozen writes no annotation: before each it checks that its Lease is still valid.
func TestNoAnnotationWithoutTheLease(t *testing.T) {
	server, err := client.FromConfig(config.Config{APIServer: "http://127.0.0.1:1"}, "test").REST()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.NewCluster(server, "test", nil) // asking it would be an error
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	done := make(chan []nb.Unit, 1)
	n := New(cluster, desired.NewWorld().Pods, func(ev func() []nb.Unit) { done <- ev() })
	k := pod.Key{Namespace: "a", Name: "b"}
	stale := &note{uid: "u", value: "v", all: map[string]string{"k": "v"}}
	n.notes[k] = stale
	n.jobs.put(job{k.Unit(), k, stale})
	if !n.patch(t.Context()) {
		t.Fatal("no job")
	}
	if units := <-done; len(units) != 0 || stale.err != nil || len(n.notes) != 0 {
		t.Errorf("the API server was asked: %v, units %v", stale.err, units)
	}
}
