package desired

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/nb/nbdb"
)

// Earlier releases recorded nodes with names of up to 253 characters, and an ACL's name has 63.
func TestNodesWithLongNamesHavePolicies(t *testing.T) {
	w := NewWorld()
	c := cluster(t)
	long := strings.Repeat("node.", 50) + "abc"
	c.Nodes[long] = prefixes("10.0.1.0/24", "fd00:0:0:1::/64") // WithNode refuses it
	w.Put(c)
	w.Put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "closed"}})
	rows, err := w.Rows(policy.NodeUnit(long))
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, end := range []string{"/claimed", "/from-node", "/to-node"} {
		if name := *rows[i].Model.(*nbdb.ACL).Name; len(name) > 63 || !strings.HasPrefix(name, "node.node.") || !strings.HasSuffix(name, end) {
			t.Errorf("the name %q is not one of at most 63 characters that ends with %s", name, end)
		}
	}
}
