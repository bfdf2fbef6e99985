package policy

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// API servers before Kubernetes 1.36 accept host bits, and later ones keep such policies.
func TestHostBitsOfBlocksAreIgnored(t *testing.T) {
	left, err := parseBlock(&networkingv1.IPBlock{CIDR: "10.1.2.3/15", Except: []string{"10.1.2.3/16"}})
	if err != nil || fmt.Sprint(left) != "[10.0.0.0/16]" {
		t.Errorf("got %v, %v", left, err)
	}
}

// A named port has no number at a block of addresses: its author learns that the rule allows nothing there.
func TestANamedPortToABlockIsReported(t *testing.T) {
	block := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}}
	http, number := intstr.FromString("http"), intstr.FromInt32(80)
	for _, tt := range []struct {
		name string
		spec networkingv1.NetworkPolicySpec
		want string
	}{
		{"egress", networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: block, Ports: []networkingv1.NetworkPolicyPort{{Port: &http}}}}},
			`spec.egress[0].ports: named port "http" allows nothing to an ipBlock`},
		{"a number", networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: block, Ports: []networkingv1.NetworkPolicyPort{{Port: &number}}}}}, ""},
		{"ingress", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: block, Ports: []networkingv1.NetworkPolicyPort{{Port: &http}}}}}, ""},
	} {
		p := New(&networkingv1.NetworkPolicy{Spec: tt.spec})
		if got := strings.Join(p.Problems, "; "); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" || len(p.rules) != 1 {
			t.Errorf("%s: %d rules, problems %q", tt.name, len(p.rules), got)
		}
	}
}
