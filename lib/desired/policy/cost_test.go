package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nb"
)

// lacking lists peers, each of all pods without a label of its own.
func lacking(n int) (out []networkingv1.NetworkPolicyPeer) {
	for i := range n {
		out = append(out, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{},
			PodSelector:       &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprint("x", i), Operator: metav1.LabelSelectorOpDoesNotExist}}},
		})
	}
	return out
}

// populated is an index with pods in ten namespaces.
func populated(pods int) *Index {
	x := NewIndex()
	for i := range 10 {
		x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns-", i)}})
	}
	for i := range pods {
		x.PutPod(pod.Key{Namespace: fmt.Sprint("ns-", i%10), Name: fmt.Sprint("pod-", i)}, map[string]string{"app": fmt.Sprint("app-", i%50)}, nil)
	}
	return x
}

func from(namespace, name string, peers []networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}}
	return p
}

// L1: 999 selectors of labels that no pod has are as large as with such pods, and closed. Whoever has pods with these labels
// decides nothing about a policy of others.
func TestSelectorsCountAsWritten(t *testing.T) {
	x := populated(5000)
	x.PutPolicy(New(from("ns-0", "large", lacking(999))))
	k := pod.Key{Namespace: "ns-1", Name: "pod-1"}
	for i := range 20 {
		rows, problem := x.Rows(Key{"ns-0", "large"}.Unit())
		if len(rows) != 0 || !strings.Contains(problem, "may select 8184320 pods in sum, more than 50000") {
			t.Errorf("%d rows: %s", len(rows), problem)
		}
		if _, to := x.Check(Connection{From: Endpoint{Pod: k}, To: Endpoint{Pod: pod.Key{Namespace: "ns-0", Name: "pod-0"}}}); to.Allowed {
			t.Error(to.Reason)
		}
		if refs := x.Refs(k); len(refs) != 0 {
			t.Errorf("a pod is in %d groups", len(refs))
		}
		x.PutPod(pod.Key{Namespace: "ns-9", Name: fmt.Sprint("odd-", i)}, map[string]string{fmt.Sprint("x", i): ""}, nil)
	}
}

// The first pod with an excluded label, and the end of the last one, change that pod only: anybody may label pods.
func TestAnExcludedLabelChangesItsPodOnly(t *testing.T) {
	x := populated(1000)
	for _, p := range []networkingv1.NetworkPolicyPeer{
		lacking(1)[0],
		{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"red"}}}}},
	} {
		x.PutPolicy(New(from("ns-0", "open", []networkingv1.NetworkPolicyPeer{p})))
		k := pod.Key{Namespace: "red", Name: "mine"}
		x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red", Labels: map[string]string{"team": "red"}}})
		for _, touched := range [][]nb.Unit{
			x.PutPod(k, nil, nil), x.PutPod(k, map[string]string{"x0": ""}, nil), x.PutPod(k, nil, nil), x.RemovePod(k),
		} {
			if len(touched) > 1 {
				t.Errorf("%d units are touched", len(touched))
			}
		}
		x.RemovePolicy(Key{"ns-0", "open"})
	}
}

// L1: many policies are bounded too, and the older ones stay in force.
func TestTheLimitOfANamespaceKeepsOlderPolicies(t *testing.T) {
	x := populated(5000)
	allowed := func(i int) bool {
		rows, problem := x.Rows(Key{"ns-0", fmt.Sprint("policy-", i)}.Unit())
		if (problem == "") != (len(rows) > 0) {
			t.Errorf("policy-%d: %d rows, %s", i, len(rows), problem)
		}
		return problem == ""
	}
	for i := range 60 {
		peer := lacking(1)[0]
		peer.PodSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpNotIn
		peer.PodSelector.MatchExpressions[0].Key, peer.PodSelector.MatchExpressions[0].Values = "app", []string{fmt.Sprint("app-", i%50), fmt.Sprint("app-", (i+1+i/50)%50)}
		p := from("ns-0", fmt.Sprint("policy-", i), []networkingv1.NetworkPolicyPeer{peer})
		p.CreationTimestamp = metav1.Unix(int64(1000-i), 0)
		x.PutPolicy(New(p))
	}
	x.Settle()
	refs := len(x.Refs(pod.Key{Namespace: "ns-1", Name: "pod-1"}))
	if allowed(0) || !allowed(59) || refs < 10 || refs > 24 {
		t.Errorf("oldest in force: %t, newest: %t, a pod is in %d groups", allowed(59), allowed(0), refs)
	}
	for i := 10; i < 60; i++ {
		x.RemovePolicy(Key{"ns-0", fmt.Sprint("policy-", i)})
	}
	x.Settle()
	if !allowed(0) {
		t.Error("there is room again, but the policy allows nothing")
	}
}

// named returns ports by name, and the same ports of a pod, with numbers from one on.
func named(n, first int) (ports []networkingv1.NetworkPolicyPort, of []Port) {
	for i := range n {
		name := intstr.FromString(fmt.Sprint("p", i))
		ports = append(ports, networkingv1.NetworkPolicyPort{Port: &name})
		of = append(of, Port{fmt.Sprint("p", i), corev1.ProtocolTCP, uint16(1 + (first+i*61)%65000)})
	}
	return ports, of
}

// L2: 900 named ports with different numbers in 60 pods are one port group for each pod,
// not for each number, and no match is longer than its ports.
func TestNamedPortsAreGroupedByTheirNumbers(t *testing.T) {
	x := populated(100)
	ports, _ := named(900, 0)
	for i := range 60 {
		_, of := named(900, i*1009)
		x.PutPod(pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)}, map[string]string{"app": "web"}, of)
	}
	p := from("ns-0", "named", []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}})
	p.Spec.Ingress[0].Ports = ports
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: ports}}
	x.PutPolicy(New(p))
	rows, bytes, longest := 0, 0, 0
	for _, u := range x.Units() {
		list, problem := x.Rows(u)
		if problem != "" {
			t.Error(problem)
		}
		for _, r := range list {
			rows, bytes, longest = rows+1, bytes+len(r.String()), max(longest, len(r.String()))
		}
	}
	if rows > 1000 || bytes > 10_000_000 || longest > 100_000 {
		t.Errorf("%d rows of %d bytes, the longest has %d", rows, bytes, longest)
	}
	if refs := x.Refs(pod.Key{Namespace: "ns-0", Name: "web-1"}); len(refs) != 4 {
		t.Errorf("a pod is in %d groups: %v", len(refs), refs)
	}
	c := Connection{From: Endpoint{Pod: pod.Key{Namespace: "ns-1", Name: "pod-1"}}, To: Endpoint{Pod: pod.Key{Namespace: "ns-0", Name: "web-1"}}, Proto: corev1.ProtocolTCP, Port: 1010}
	if _, to := x.Check(c); !to.Allowed {
		t.Error(to.Reason)
	}
}

// L2: numbers in thousands of pods close the policy, and no port group is left.
func TestTooManyNumbersOfNamedPortsAllowNothing(t *testing.T) {
	x := populated(10)
	ports, _ := named(1, 0)
	for i := range 1500 {
		x.PutPod(pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)}, nil, []Port{{"p0", corev1.ProtocolTCP, uint16(1 + i)}})
	}
	p := from("ns-0", "named", nil)
	p.Spec.Ingress[0].Ports = ports
	x.PutPolicy(New(p))
	rows, problem := x.Rows(Key{"ns-0", "named"}.Unit())
	if len(rows) > 0 || !strings.Contains(problem, "become 1500 port groups, more than 1000") {
		t.Errorf("%d rows: %s", len(rows), problem)
	}
	if refs := x.Refs(pod.Key{Namespace: "ns-0", Name: "web-1"}); len(refs) != 1 {
		t.Errorf("a pod is in %v", refs)
	}
}

// L1: the cost of exceptions depends on the number of remaining subnets. A policy with
// exceptions subtracted one after the other allocated 250 MB.
func TestExceptionsAreSubtractedAtOnce(t *testing.T) {
	p := from("ns-0", "blocks", nil)
	for range 5 {
		b := &networkingv1.IPBlock{CIDR: "::/0"}
		for i := range 160 {
			b.Except = append(b.Except, fmt.Sprintf("%x::1/128", i<<8))
		}
		p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{IPBlock: b})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := New(p)
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) / 1e6; mb > 60 || len(got.Problems) > 0 {
		t.Errorf("%d MB, %v", mb, got.Problems)
	}
}

// An invalid value of an annotation is reported in few words.
func TestAProblemOfAnAnnotationIsShort(t *testing.T) {
	for _, s := range []string{strings.Repeat("x", 200_000), `{"deny": "` + strings.Repeat("x", 200_000) + `"}`} {
		if l := newLogging(s); len(l.problem) > 600 || l.problem == "" {
			t.Errorf("%d bytes", len(l.problem))
		}
	}
}

// L1: selectors with one short name are different groups all the same. An author finds such selectors with 2^32 hashes.
func TestSelectorsWithOneHashAreTwoGroups(t *testing.T) {
	l := defaultLimits()
	l.nameBytes = 0
	x := newIndex(l)
	x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	names := []string{"a", "b", "c"}
	for _, name := range names {
		x.PutPod(pod.Key{Namespace: "ns", Name: name}, map[string]string{"app": name}, nil)
		p := from("ns", name, nil)
		p.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		x.PutPolicy(New(p))
	}
	seen := map[string]bool{}
	for _, name := range names {
		refs := x.Refs(pod.Key{Namespace: "ns", Name: name})
		if len(refs) != 1 || seen[refs[0].ID] {
			t.Errorf("pod %s is in %v", name, refs)
			continue
		}
		seen[refs[0].ID] = true
	}
	x.RemovePolicy(Key{"ns", "a"}) // it had the short name
	x.PutPolicy(New(from("ns", "b", nil)))
	if refs := x.Refs(pod.Key{Namespace: "ns", Name: "c"}); len(refs) != 2 {
		t.Errorf("pod c is in %v", refs)
	}
}

// A policy that is written again and again leaves no former maps of the census behind.
func TestCompactLeavesNoFormerCensus(t *testing.T) {
	x := populated(100)
	for i := range 2 {
		x.PutPolicy(New(from("ns-0", fmt.Sprint("policy-", i), selectors(4))))
		x.Compact()
	}
	for k, s := range x.policies.all {
		for _, w := range s.watching {
			if w.of != x.census.own && w.of != x.census.ofSpace {
				t.Fatalf("%s refers to the labels of a former census", k)
			}
		}
	}
	for i := range 2 {
		x.RemovePolicy(Key{"ns-0", fmt.Sprint("policy-", i)})
	}
	if n := len(x.census.own.byLabel); n != 50 {
		t.Errorf("%d labels are counted: pods have 50", n)
	}
}

// L1: each rule with named ports looks for them among the pods of its policy. However many values select these, it compares no more
// than the classes of pods in the namespace.
func TestManyValuesAreNotLookedUp(t *testing.T) {
	x := populated(100) // each namespace has 5 classes
	for values, want := range map[int]bool{1: true, 5: true, 6: false, 18_000: false} {
		need := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
		for i := range values {
			need.Values = append(need.Values, fmt.Sprint("app-", i))
		}
		s, err := newSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{need}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, got := x.census.listed(s, &scope{ns: x.spaces.all["ns-0"]}); got != want {
			t.Errorf("%d values are looked up: %v", values, got)
		}
	}
}
