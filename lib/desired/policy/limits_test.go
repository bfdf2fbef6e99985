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

// blocks returns subnets as peers.
func blocks(n int) (out []networkingv1.NetworkPolicyPeer) {
	for i := range n {
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/28", i/250, i%250)}})
	}
	return out
}

// One policy cannot overload the cluster: a policy too large isolates its subject and
// reports one problem. Others stay in force.
func TestAPolicyThatIsTooLargeAllowsNothing(t *testing.T) {
	values := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint("v", i))
		}
		return out
	}
	in := func(n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values(n)}}}
	}
	const tooMany = "spec: %d rules, selectors and exceptions are more than 1000: nothing is allowed: make several policies"
	const tooMuch = "spec: %d labels, ports and subnets are more than 20000: nothing is allowed: make several policies"
	for _, tt := range []struct {
		name   string
		change func(*networkingv1.NetworkPolicySpec)
		want   string
	}{
		{"as many selectors as there may be", func(s *networkingv1.NetworkPolicySpec) { s.Ingress[0].From = selectors(999) }, ""},
		{"selectors", func(s *networkingv1.NetworkPolicySpec) { s.Ingress[0].From = selectors(1001) }, fmt.Sprintf(tooMany, 1002)},
		{"as many subnets as there may be", func(s *networkingv1.NetworkPolicySpec) { s.Ingress[0].From = blocks(20000) }, ""},
		{"subnets", func(s *networkingv1.NetworkPolicySpec) { s.Ingress[0].From = blocks(20001) }, fmt.Sprintf(tooMuch, 20001)},
		{"rules", func(s *networkingv1.NetworkPolicySpec) {
			s.Ingress = make([]networkingv1.NetworkPolicyIngressRule, 30000)
		}, fmt.Sprintf(tooMany, 30000)},
		{"exceptions", func(s *networkingv1.NetworkPolicySpec) {
			b := networkingv1.IPBlock{CIDR: "10.0.0.0/8"}
			for i := range 20000 {
				b.Except = append(b.Except, fmt.Sprintf("10.%d.%d.1/32", i/250, i%250))
			}
			s.Ingress[0].From = []networkingv1.NetworkPolicyPeer{{IPBlock: &b}}
		}, fmt.Sprintf(tooMany, 20001)},
		{"values", func(s *networkingv1.NetworkPolicySpec) {
			many := in(20001)
			s.Ingress[0].From = []networkingv1.NetworkPolicyPeer{{PodSelector: &many}}
		}, fmt.Sprintf(tooMuch, 20001)},
		{"ports", func(s *networkingv1.NetworkPolicySpec) {
			port := intstr.FromInt32(80)
			for range 20001 {
				s.Ingress[0].Ports = append(s.Ingress[0].Ports, networkingv1.NetworkPolicyPort{Port: &port})
			}
		}, fmt.Sprintf(tooMuch, 20001)},
		{"what exceptions leave", func(s *networkingv1.NetworkPolicySpec) {
			b := networkingv1.IPBlock{CIDR: "::/0"}
			for i := range 400 {
				b.Except = append(b.Except, fmt.Sprintf("%x::1/128", i<<6))
			}
			s.Ingress[0].From = []networkingv1.NetworkPolicyPeer{{IPBlock: &b}}
		}, `spec.ingress[0].from[0].ipBlock.except: without them "::/0" falls into more than 20000 subnets: give fewer or shorter prefixes`},
		{"those whom it applies to", func(s *networkingv1.NetworkPolicySpec) { s.PodSelector = in(20001) },
			"spec.podSelector: 20001 labels and values are more than 20000: all pods of the namespace are isolated until it is corrected"},
		{"mistakes", func(s *networkingv1.NetworkPolicySpec) {
			s.Ingress[0].From = make([]networkingv1.NetworkPolicyPeer, 900)
		}, "; and 896 more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := NewIndex()
			k := pod.Key{Namespace: "default", Name: "web"}
			x.PutPod(k, map[string]string{"app": "v1"}, nil)
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large"}}
			p.Spec.Ingress = make([]networkingv1.NetworkPolicyIngressRule, 1)
			tt.change(&p.Spec)
			x.PutPolicy(New(p))
			rows, problem := x.Rows(Key{"default", "large"}.Unit())
			if tt.want == "" && (problem != "" || len(rows) == 0) || !strings.Contains(problem, tt.want) || len(problem) > 1000 {
				t.Errorf("%d rows; %s", len(rows), problem)
			}
			if tt.want != "" && len(rows) > 0 {
				t.Errorf("it has %d rows", len(rows))
			}
			_, to := x.Check(Connection{To: Endpoint{Pod: k}, Proto: corev1.ProtocolTCP, Port: 80})
			if to.Allowed {
				t.Error(to.Reason)
			}
		})
	}
}

// selectors returns peers, each with a label of its own.
func selectors(n int) (out []networkingv1.NetworkPolicyPeer) {
	for i := range n {
		out = append(out, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("client-", i)}}})
	}
	return out
}
