package desired

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/nb"
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

// Many policies of a namespace are compared with its limit in Allocate: the oldest one is in force, even if it came last.
func TestAllocateComparesPoliciesWithTheirLimit(t *testing.T) {
	const pods, policies = 500, 450
	w := NewWorld()
	w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for i := range pods {
		w.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i)}, Spec: corev1.PodSpec{NodeName: "minion1"}})
	}
	name := func(i int) string { return fmt.Sprint("policy-", i) }
	for i := range policies {
		peer := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: name(i), Operator: metav1.LabelSelectorOpDoesNotExist}}}
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name(i), CreationTimestamp: metav1.Unix(int64(policies-i), 0)}}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &peer}}}}
		w.Put(p)
	}
	touched := map[nb.Unit]bool{}
	for _, u := range w.Allocate() {
		touched[u] = true
	}
	for i, inForce := range map[int]bool{0: false, policies - 1: true} {
		u := policy.Key{Namespace: "default", Name: name(i)}.Unit()
		if rows, err := w.Rows(u); len(rows) > 0 != inForce || (err == nil) != inForce || inForce && !touched[u] {
			t.Errorf("%s: %d rows, %v; touched: %t", u, len(rows), err, touched[u])
		}
	}
}
