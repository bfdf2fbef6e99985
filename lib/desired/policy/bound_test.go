package policy

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/desired/pod"
)

// oneNameEach is a policy of ns-0 with rules for ports, each for one name.
func oneNameEach(rules int, peers []networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	p := from("ns-0", "named", peers)
	p.Spec.Ingress = nil
	for i := range rules {
		name := intstr.FromString(fmt.Sprint("p", i))
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: []networkingv1.NetworkPolicyPort{{Port: &name}}})
	}
	return p
}

// L2: a long selector is not repeated for each set of numbers.
func TestALongSelectorIsWrittenInFewWords(t *testing.T) {
	x := populated(10)
	values := []string{"web"}
	for i := range 19_700 {
		values = append(values, fmt.Sprintf("%s-%d", strings.Repeat("x", 54), 10_000+i))
	}
	for i := range 10 {
		_, of := named(100, i*100)
		x.PutPod(pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)}, map[string]string{"app": "web"}, of)
	}
	p := oneNameEach(100, nil)
	p.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}}
	x.PutPolicy(New(p))
	bytes := 0
	for _, u := range x.Units() {
		rows, problem := x.Rows(u)
		if problem != "" {
			t.Error(problem)
		}
		for _, r := range rows {
			bytes += len(r.String())
		}
	}
	if bytes > 10_000_000 {
		t.Errorf("the rows have %d bytes", bytes)
	}
}

// L1: refused policies still isolate exactly their pods, and a pod joins few groups for them.
func TestRefusedPoliciesShareAGroup(t *testing.T) {
	x := NewIndex()
	x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns-0"}})
	const pods, policies = 500, 1000
	web := func(i int) pod.Key { return pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)} }
	for i := range pods {
		x.PutPod(web(i), nil, nil)
	}
	for i := range policies {
		p := from("ns-0", fmt.Sprint("policy-", i), nil)
		p.CreationTimestamp = metav1.Unix(int64(i), 0)
		p.Spec.PodSelector = *lacking(i + 1)[i].PodSelector
		x.PutPolicy(New(p))
	}
	refs := 0
	for i := range pods {
		refs += len(x.Refs(web(i)))
	}
	if limit := x.policies.planner.limits.perSpace * x.policies.planner.maxMembers(); refs > limit+pods {
		t.Errorf("%d members, the limit is %d", refs, limit)
	}
	expect := func(lacks int, want bool) {
		t.Helper()
		k, labels := pod.Key{Namespace: "ns-0", Name: "odd"}, map[string]string{}
		for i := range policies {
			if i != lacks {
				labels[fmt.Sprint("x", i)] = ""
			}
		}
		x.PutPod(k, labels, nil)
		from, to := x.Check(Connection{To: Endpoint{Pod: k}, From: Endpoint{Pod: k}})
		refs := x.Refs(k)
		if to.Allowed == want || !from.Allowed || (len(refs) > 0) != want || want && (len(refs) > 1 || refs[0].ID != "np_ns_0_refused_ingress") {
			t.Errorf("a pod without label %d: %v, %s, %s", lacks, refs, from.Reason, to.Reason)
		}
		if bad := dangling(x); len(bad) > 0 {
			t.Errorf("a pod without label %d: there is no %v", lacks, bad)
		}
	}
	expect(policies, false)
	expect(policies-1, true)
	rows, _ := x.Rows("group/refused/ns-0")
	if len(rows) != 2 || !strings.Contains(rows[1].String(), `outport == @np_ns_0_refused_ingress && ip`) {
		t.Errorf("rows: %v", rows)
	}
	for i := range policies {
		x.RemovePolicy(Key{"ns-0", fmt.Sprint("policy-", i)})
	}
	expect(policies-1, false)
	if units := x.Units(); len(units) > 0 || x.spaces.all["ns-0"].refused != nil {
		t.Errorf("units are left: %v", units)
	}
}

// L2: each set of numbers of an ingress rule has an ACL with all peers.
func TestPeersCountForEachSetOfNumbers(t *testing.T) {
	x, unit := populated(5000), Key{"ns-0", "named"}.Unit()
	for i := range 25 {
		_, of := named(40, i*40)
		x.PutPod(pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)}, map[string]string{"app": "web"}, of)
	}
	p := oneNameEach(40, []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}})
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
	x.PutPolicy(New(p))
	flows := func() (flows int) {
		sizes := map[string]int{}
		for k := range x.Pods() {
			for _, ref := range x.Refs(k) {
				sizes[ref.ID]++
			}
		}
		rows, _ := x.Rows(unit)
		for _, r := range rows {
			text := r.String()
			for name, n := range sizes {
				if strings.Contains(text, "$"+name+"_ip4") {
					flows += n
				}
			}
		}
		return flows
	}
	if n, limit := flows(), x.policies.planner.maxFlows(); n > limit {
		t.Errorf("%d addresses in matches, the limit is %d", n, limit)
	}
	if _, problem := x.Rows(unit); !strings.Contains(problem, "named ports become 8192000 flows") {
		t.Error(problem)
	}
	for i := 1; i < 25; i++ { // one pod: one set for each name
		x.RemovePod(pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)})
	}
	if n := flows(); n < 40*5000 {
		t.Errorf("%d addresses in matches with a single pod", n)
	}
	for i := range 10_000 { // 15 000 are rounded to 16 384: more flows, and the limit is higher
		x.PutPod(pod.Key{Namespace: "ns-1", Name: fmt.Sprint("more-", i)}, nil, nil)
	}
	if n, limit := flows(), x.policies.planner.maxFlows(); n < 40*15_000 || n > limit {
		t.Errorf("%d addresses in matches of 15 000 pods, the limit is %d", n, limit)
	}
}
