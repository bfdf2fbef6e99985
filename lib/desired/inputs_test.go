package desired

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// The same Selection again costs nothing, however many Services and nodes there are: the watcher puts it often.
func TestTheSameSelectionCostsNothing(t *testing.T) {
	w := NewWorld()
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes = map[string][]netip.Prefix{}
	for i := range 100 {
		c.Nodes[fmt.Sprint("node-", i)] = prefixes(fmt.Sprintf("10.1.%d.0/24", i))
	}
	w.Put(c)
	for i := range 100 {
		ip := fmt.Sprintf("10.96.0.%d", i+1)
		w.Put(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("s", i)},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		})
	}
	for _, s := range []loadbalancer.Selection{{}, {Userspace: true}, {IPv6Source: true}} {
		if touched := w.Put(s); len(touched) < 100 || w.Services.inputs.Selection != s {
			t.Errorf("%+v: %d units, want all Services", s, len(touched))
		}
		if n := testing.AllocsPerRun(10, func() { w.Put(s) }); n > 10 {
			t.Errorf("%+v again: %v allocations", s, n)
		}
	}
}
