package desired

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// static makes a mirror of a static pod.
func static(uid string, ips ...string) *corev1.Pod {
	p := started("etcd-n1", 1, ips...)
	p.UID = types.UID(uid)
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	return p
}

// A static pod keeps its address when its Node is deleted and registered again: its sandbox is still running, and the
// garbage collector deletes its mirror meanwhile.
func TestAStaticPodKeepsItsAddressWithoutItsNode(t *testing.T) {
	there := oneNode(t, "10.0.1.0/24")
	gone := there
	gone.Nodes = nil
	for _, tt := range []struct {
		what  string
		steps []func(w *World)
	}{
		{"the Node, then the mirror", []func(*World){
			func(w *World) { w.Put(gone) },
			func(w *World) { w.Remove(static("u1")) },
			func(w *World) { w.Put(there) },
		}},
		{"the mirror, then the Node", []func(*World){
			func(w *World) { w.Remove(static("u1")) },
			func(w *World) { w.Put(gone) },
			func(w *World) { w.Put(there) },
		}},
		{"another mirror before the Node", []func(*World){
			func(w *World) { w.Put(gone) },
			func(w *World) { w.Remove(static("u1")) },
			func(w *World) { w.Put(static("u2")) },
			func(w *World) { w.Remove(static("u2")) },
			func(w *World) { w.Put(there) },
		}},
		{"the Node twice", []func(*World){
			func(w *World) { w.Remove(static("u1")) },
			func(w *World) { w.Put(gone) },
			func(w *World) { w.Put(there) },
			func(w *World) { w.Put(gone) },
			func(w *World) { w.Put(there) },
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w := NewWorld()
			w.Put(there)
			w.Put(static("u1"))
			w.Allocate()
			before := given(w)["etcd-n1"]
			for _, step := range tt.steps {
				step(w)
				w.Allocate()
			}
			w.Put(newPod("other", "n1"))
			w.Allocate()
			w.Put(static("u3"))
			w.Allocate()
			if got := given(w)["etcd-n1"]; got != before || before == "" {
				t.Errorf("it has %q, want %q", got, before)
			}
		})
	}
}

// A static pod whose earlier address is not known any more gets it back when the kubelet reports it, if it is free.
func TestAStaticPodGetsTheAddressItReports(t *testing.T) {
	for _, tt := range []struct{ what, reports, want, problem string }{
		{"free", "10.0.1.9", "10.0.1.9/24", ""},
		{"its own", "10.0.1.4", "10.0.1.4/24", ""},
		{"another pod's", "10.0.1.3", "10.0.1.4/24", "pod default/etcd-n1 runs with address 10.0.1.3, but is assigned 10.0.1.4: its packets are dropped; delete the pod to recreate it"},
		{"of another subnet", "10.0.2.9", "10.0.1.4/24", "pod default/etcd-n1 runs with address 10.0.2.9, but is assigned 10.0.1.4: its packets are dropped; delete the pod to recreate it"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w := NewWorld()
			w.Put(oneNode(t, "10.0.1.0/24"))
			w.Put(newPod("other", "n1"))
			w.Allocate()
			w.Put(static("u1"))
			w.Allocate()
			w.Put(static("u1", tt.reports))
			w.Allocate()
			if got := given(w); got["etcd-n1"] != tt.want || got["other"] != "10.0.1.3/24" {
				t.Errorf("the pods have %v, want %s for the static one", got, tt.want)
			}
			problem := ""
			if p := w.Pods.Mismatch("pod/default/etcd-n1"); p != nil {
				problem = p.Message
			}
			if problem != tt.problem {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
			w.Put(newPod("next", "n1"))
			w.Allocate()
			noTwoShareAnAddress(t, w)
		})
	}
}
