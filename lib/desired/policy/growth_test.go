package policy

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod"
)

func podLabels(p int, version string) map[string]string {
	return map[string]string{"app": fmt.Sprint("app-", p), "version": version}
}

// Rows grow with rules and distinct selectors, and not with pods.
func TestRowsGrowWithRulesAndSelectors(t *testing.T) {
	x := NewIndex()
	x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for i := range 1000 {
		x.PutPod(pod.Key{Namespace: "default", Name: fmt.Sprint("p", i)}, podLabels(i%20, "v1"), nil)
	}
	for i := range 200 {
		x.PutPolicy(New(&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("policy", i)},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", i%20)}},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", (i+1)%20)}}},
				}}},
			},
		}))
	}
	tables := map[string]int{}
	for _, u := range x.Units() {
		rows, problem := x.Rows(u)
		if problem != "" {
			t.Error(problem)
		}
		for _, r := range rows {
			tables[r.Table]++
		}
	}
	// One group for each selector, one ACL for each rule, and one for each denying
	// selector.
	if tables["Port_Group"] != 20 || tables["ACL"] != 200+20 || len(tables) != 2 {
		t.Errorf("rows: %v", tables)
	}
	k := pod.Key{Namespace: "default", Name: "new"}
	if touched := x.PutPod(k, podLabels(3, "v1"), nil); len(touched) != 1 || len(x.Refs(k)) != 1 {
		t.Errorf("a pod that starts touches %v and is in %v", touched, x.Refs(k))
	}
	if touched := x.PutPod(k, podLabels(4, "v1"), nil); len(touched) != 1 || len(x.Refs(k)) != 1 {
		t.Errorf("a pod with another label touches %v and is in %v", touched, x.Refs(k))
	}
}

// L3: with many namespaces of ten small policies each, a pod or a namespace by which the
// number of all of them passes a power of two costs no plan of each policy.
func TestTotalsCostNoPlans(t *testing.T) {
	const spaces, policies = 500, 10
	x := NewIndex()
	put := func(i int) {
		name := fmt.Sprint("ns-", i)
		x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": fmt.Sprint(i % 50)}}})
		x.PutPod(pod.Key{Namespace: name, Name: "pod"}, map[string]string{"app": "web"}, nil)
	}
	for i := range spaces {
		put(i)
	}
	all, some := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}}, {NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "7"}}},
	}
	for i := range spaces {
		for p := range policies {
			x.PutPolicy(New(from(fmt.Sprint("ns-", i), fmt.Sprint("policy-", p), [][]networkingv1.NetworkPolicyPeer{all, some}[p%2])))
		}
	}
	worst := uint64(0)
	for i := range 32 { // past 512 namespaces and 512 pods
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		put(spaces + i)
		runtime.ReadMemStats(&after)
		worst = max(worst, after.TotalAlloc-before.TotalAlloc)
	}
	if each := worst / (spaces * policies); each > 250 {
		t.Errorf("the worst change allocates %d bytes for each policy", each)
	}
}

// L1: most of the policies of a namespace are above its limit. What one more costs does not depend on their number.
func TestPoliciesOfOneNamespaceCostNoSquare(t *testing.T) {
	x := populated(500)
	put := func(first, n int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range n {
			peer := lacking(1)[0]
			peer.PodSelector.MatchExpressions[0].Key = fmt.Sprint("x", first+i)
			p := from("ns-0", fmt.Sprint("policy-", first+i), []networkingv1.NetworkPolicyPeer{peer})
			p.CreationTimestamp = metav1.Unix(int64((first+i)*7919%10_000), 0)
			x.PutPolicy(New(p))
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	put(0, 1000)
	few := put(1000, 500)
	put(1500, 4000)
	many := put(5500, 500)
	if x.Settle(); many > 2*few {
		t.Errorf("500 policies allocate %d bytes after 1000, and %d after 5500", few, many)
	}
	refused := 0
	for _, s := range x.policies.all {
		if s.spaceExcess == undecided {
			t.Fatalf("%s is not compared with the limit", s.Key)
		}
		if s.spaceExcess != "" {
			refused++
		}
	}
	if refused < 5000 {
		t.Errorf("only %d policies are above the limit", refused)
	}
}
