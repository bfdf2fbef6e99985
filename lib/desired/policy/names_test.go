package policy

import (
	"crypto/sha256"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/desired/pod"
)

// collision returns port numbers of two pods whose texts have equal beginnings of their hashes. Everybody can find some.
func collision(names []namedPort) (a, b []Port) {
	seen := map[[4]byte][]Port{}
	for first := uint16(1); ; first++ {
		for step := range uint16(400) {
			var ports []Port
			for i, n := range names {
				ports = append(ports, Port{n.name, n.proto, first + uint16(i)*(2+step)})
			}
			_, text := (&numbers{names: names}).of(&class{ports: ports})
			sum := sha256.Sum256([]byte(text))
			begin := [4]byte(sum[:])
			if other := seen[begin]; other != nil {
				return other, ports
			}
			seen[begin] = ports
		}
	}
}

// Pods of others do not give two rows of a policy one name: it could not be written.
func TestRowsHaveDifferentNamesWhateverPortsPodsHave(t *testing.T) {
	ports, of := named(5, 0)
	var names []namedPort
	for _, p := range of {
		names = append(names, namedPort{corev1.ProtocolTCP, p.Name})
	}
	x := populated(10)
	a, b := collision(names)
	x.PutPod(pod.Key{Namespace: "ns-0", Name: "a"}, nil, a)
	x.PutPod(pod.Key{Namespace: "ns-0", Name: "b"}, nil, b)
	p := from("ns-0", "named", nil)
	p.Spec.Ingress, p.Spec.Egress = nil, []networkingv1.NetworkPolicyEgressRule{{Ports: ports}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	x.PutPolicy(New(p))
	rows, problem := x.Rows(Key{"ns-0", "named"}.Unit())
	if len(rows) < 2 || problem != "" {
		t.Fatalf("%d rows: %s", len(rows), problem)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.ID] {
			t.Errorf("two rows %s", r.ID)
		}
		seen[r.ID] = true
	}
}
