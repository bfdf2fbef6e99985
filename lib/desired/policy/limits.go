package policy

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of one policy. Otherwise anybody with the right to write policies could
// overload the databases and every ovn-controller with one. A larger policy allows
// nothing.
const (
	// maxPeers limits the number of rules, peers with selectors, and exceptions.
	maxPeers = 1000
	// maxValues limits the number of labels, values of expressions, ports, and
	// subnets of ipBlocks after their exceptions.
	maxValues = 20_000
	// maxProblems limits the number of problems reported: an Event has room for 1024
	// characters.
	maxProblems = 4
)

// tooLarge returns why a policy exceeds the limits, "" if it does not. It looks only
// at the specification.
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

// selectorValues returns the number of values in a selector.
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
