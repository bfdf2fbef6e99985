package desired

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// A Node without subnets is a Problem only where commands give them: ovnkube gives them in a moment, or tells why not.
func TestNodesWithoutSubnets(t *testing.T) {
	for _, program := range []string{"", names.Ovnkube} {
		c := oneNode(t, "10.0.1.0/24")
		c.NumberedBy = program
		w := NewWorld()
		w.Put(c)
		w.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
		p := newPod("web", "n2")
		w.Put(p)
		w.Allocate()
		_, node := w.Rows(topology.NodeUnit("n2"))
		rows, pod := w.Rows("pod/default/web")
		if want := program == ""; (node != nil) != want || (pod != nil) != want || len(rows) > 0 {
			t.Errorf("numbered by %q: %v, %v, rows %v", program, node, pod, rows)
		}
		c, err := c.WithNode("n2", prefixes("10.0.2.0/24"))
		if err != nil {
			t.Fatal(err)
		}
		w.Put(c)
		w.Allocate()
		if rows, err := w.Rows("pod/default/web"); err != nil || len(rows) == 0 {
			t.Errorf("with subnets: %v, %v", rows, err)
		}
	}
}
