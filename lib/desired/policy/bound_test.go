package policy

import (
	"fmt"
	"strings"
	"testing"

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
