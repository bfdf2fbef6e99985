package desired

import (
	"testing"

	"ovn-k8s/lib/desired/facts"

	corev1 "k8s.io/api/core/v1"
)

// A pod with a port that is down is reported if it runs on a registered host.
func TestDisconnected(t *testing.T) {
	w := NewWorld()
	c := cluster(t, 1, 2)
	w.Put(c.WithChassis("n1", "chassis1").WithChassis("n2", "chassis2"))
	running, starting, elsewhere := newPod("a", "n1"), newPod("b", "n1"), newPod("c", "n2")
	running.Status.PodIPs = []corev1.PodIP{{IP: "10.0.1.3"}}
	elsewhere.Status.PodIPs = []corev1.PodIP{{IP: "10.0.2.3"}}
	for _, p := range []any{running, starting, elsewhere} {
		w.Put(p)
	}
	down := map[string]bool{"default_a": true, "default_b": true, "default_c": true, "k8s-n1": true, "default_gone": true}
	if got := w.Disconnected(down); len(got) != 0 {
		t.Errorf("no host is known: %v", got)
	}
	w.Put(facts.Registered{"chassis1": true})
	if got := w.Disconnected(down); len(got) != 1 || got[0].Unit != "pod/default/a" || got[0].Reason != "NoInterface" {
		t.Errorf("%v", got)
	}
	delete(down, "default_a")
	if got := w.Disconnected(down); len(got) != 0 {
		t.Errorf("its port is up: %v", got)
	}
}
