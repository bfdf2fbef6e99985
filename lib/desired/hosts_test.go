package desired

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
)

// sayer is a Node that says it has addresses.
func sayer(name string, created int64, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// A kubelet writes its own Node's addresses, and pods' packets to them go to its
// host. So it does not get what is another's by saying so.
func TestANodeDoesNotGetAnothersAddress(t *testing.T) {
	w := NewWorld()
	w.Put(service.Ranges(prefixes("172.16.0.0/16")))
	w.Put(cluster(t, 0, 1))
	leads := func(node string) string {
		t.Helper()
		rows, err := w.Rows(nb.Unit("host/" + node))
		return fmt.Sprint(rows, err)
	}
	const to = "ip_prefix=192.0.2.1 "
	for _, bad := range []struct{ address, why string }{
		{"192.0.2.1", "is that of node n1"},
		{"10.0.1.11", "lies in 10.0.0.0/16, which is for pods or services"},
		{"100.64.0.2", "lies in 100.64.0.0/16, which is for pods or services"},
		{"172.16.0.1", "lies in 172.16.0.0/16, which is for pods or services"},
		{"127.0.0.1", "is none that others can send to"},
	} {
		for _, n := range []*corev1.Node{sayer("n0", 2, "192.0.2.9", bad.address), sayer("n1", 1, "192.0.2.1")} {
			w.Put(n)
		}
		want := fmt.Sprintf("address %s of node n0 %s: pods do not reach the node there", bad.address, bad.why)
		if got := leads("n0"); !strings.Contains(got, want) || strings.Contains(got, "ip_prefix="+bad.address) || !strings.Contains(got, "192.0.2.9") {
			t.Errorf("%s\nwant %s", got, want)
		}
		if got := leads("n1"); !strings.Contains(got, to) && !strings.Contains(got, `"192.0.2.1"`) {
			t.Errorf("the older node has lost its address: %s", got)
		}
		for _, n := range []string{"n0", "n1"} {
			w.Remove(sayer(n, 0))
		}
	}
	// When the other is gone, the address is free.
	w.Put(sayer("n1", 1, "192.0.2.1"))
	w.Put(sayer("n0", 2, "192.0.2.1"))
	if touched := w.Remove(sayer("n1", 0)); !slices.Contains(touched, nb.Unit("host/n0")) {
		t.Errorf("touched %v", touched)
	}
	if got := leads("n0"); !strings.Contains(got, "192.0.2.1") || strings.Contains(got, "is that of") {
		t.Error(got)
	}
}
