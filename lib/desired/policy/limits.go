package policy

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of one policy. Whoever may write policies could otherwise choke the
// databases and every ovn-controller with one. A policy that is larger allows
// nothing.
const (
	// maxPeers is how many rules, peers with selectors and exceptions there are.
	maxPeers = 1000
	// maxValues is how many labels, values of expressions, ports, and subnets
	// that ipBlocks leave there are.
	maxValues = 20_000
	// maxProblems is how many problems are told: an Event has room for 1024
	// characters.
	maxProblems = 4
)

// tooLarge says how a policy exceeds the limits, as far as that can be seen
// without working on it, "" if it does not.
func tooLarge(spec networkingv1.NetworkPolicySpec) string {
	peers, values := 0, selectorValues(&spec.PodSelector)
	count := func(all []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		peers, values = peers+1, values+len(ports)
		for _, p := range all {
			values += selectorValues(p.PodSelector) + selectorValues(p.NamespaceSelector)
			if p.IPBlock != nil {
				peers, values = peers+len(p.IPBlock.Except), values+1
			} else {
				peers++
			}
		}
	}
	for _, r := range spec.Ingress {
		count(r.From, r.Ports)
	}
	for _, r := range spec.Egress {
		count(r.To, r.Ports)
	}
	switch {
	case peers > maxPeers:
		return fmt.Sprintf("spec: %d rules, selectors and exceptions are more than %d: nothing is allowed: make several policies", peers, maxPeers)
	case values > maxValues:
		return valuesProblem(values)
	}
	return ""
}

func valuesProblem(n int) string {
	return fmt.Sprintf("spec: %d labels, ports and subnets are more than %d: nothing is allowed: make several policies", n, maxValues)
}

// selectorValues is how many values a selector names.
func selectorValues(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := len(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		n += max(1, len(e.Values))
	}
	return n
}
