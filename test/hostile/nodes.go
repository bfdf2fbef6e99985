package hostile

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes draws changes within the rights of a kubelet: addresses, also of others, labels and
// annotations, and zones.
func Nodes(s Source) Case {
	one := s.IntN(1000)
	was := Node(one)
	n, kind := s.amount(20_000), s.IntN(5)
	changed := was.DeepCopy()
	swellNode(changed, n, kind)
	other := was.DeepCopy() // unknown to the topology
	other.Name = "hostile-" + strings.Repeat("x", maxName-len("hostile-"))
	swellNode(other, n, kind)
	for !Fits(changed) || !Fits(other) {
		n = n * 2 / 3
		*changed = *was.DeepCopy()
		name := other.Name
		*other = *was.DeepCopy()
		other.Name = name
		swellNode(changed, n, kind)
		swellNode(other, n, kind)
	}
	return Case{Name: fmt.Sprintf("a node with %d of kind %d", n, kind), Objects: []any{changed, other, was.DeepCopy(), changed}, Restore: []any{was}}
}

func swellNode(n *corev1.Node, amount, kind int) {
	n.Labels[corev1.LabelTopologyZone] = "zone-0"
	n.Annotations = map[string]string{}
	for i := range amount {
		switch kind {
		case 0: // addresses of others
			n.Status.Addresses = append(n.Status.Addresses, Node(i%1000).Status.Addresses...)
		case 1:
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("198.51.%d.%d", i/256%256, i%256)})
		case 2:
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("2001:db8:7::%x", i)})
		case 3:
			n.Labels[fmt.Sprint("x", i)] = "v"
			n.Annotations[fmt.Sprint("k8s.ovn.org/x", i)] = "v"
		case 4: // addresses of pods and Services
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("%s.%d.%d", []string{"10.0", "172.30"}[i%2], i/250%250, 1+i%250)})
		}
	}
}

// Flips draws repeated changes by one author: labels of the namespace with half of all
// pods, the selector of a policy, labels of a pod, beside policies with selectors for them.
func Flips(s Source) Case {
	out := Case{Restore: []any{tenant()}}
	kind, policies := s.IntN(3), s.amount(300)
	h := shape{rules: 1, peers: s.amount(100), ports: One(s, 0, 2), port: 3, selector: One(s, 0, 4, 6, 8), ingress: true, egress: s.IntN(2) == 0}
	for i := range policies {
		out.Objects = append(out.Objects, s.policy(i, h))
	}
	for turn := range 6 {
		out.Objects = append(out.Objects, s.flip(kind, turn, h))
	}
	out.Name = fmt.Sprintf("flips of kind %d beside %d policies %s", kind, policies, h)
	return out
}

func (s Source) flip(kind, turn int, h shape) any {
	switch kind {
	case 0:
		ns := tenant()
		ns.Labels["team"], ns.Labels[fmt.Sprint("x", turn*7%100)] = fmt.Sprint(turn%2), "here"
		return ns
	case 1:
		p := s.policy(0, h)
		p.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"tier": fmt.Sprint("tier-", turn%4)}}
		if turn%2 == 0 {
			p.Spec.PodSelector = metav1.LabelSelector{}
		}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}[:1+turn%2]
		return p
	}
	p := Pod(Tenant, "flipping", turn%3, 100)
	p.Spec.NodeName = NodeName(3)
	p.Labels["app"], p.Labels[fmt.Sprint("x", turn)] = fmt.Sprint("app-", turn), "here"
	return p
}
