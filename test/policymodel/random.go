package policymodel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A Source generates random objects. Names, labels and ports come from small sets, so selectors match often.
type Source struct{ *rand.Rand }

// NewSource returns a source with a seed.
func NewSource(seed uint64) Source { return Source{rand.New(rand.NewPCG(seed, 1))} }

// The sets of names, values and addresses to choose from.
var (
	keys       = []string{"app", "tier", "env"}
	values     = []string{"a", "b", "c"}
	portNames  = []string{"http", "dns-1"}
	protocols  = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	blocksIPv4 = []string{"0.0.0.0/0", "10.0.0.0/16", "10.0.1.0/24", "10.0.1.0/29", "192.0.2.0/24", "192.0.2.128/25", "10.0.1.4/30", "192.0.2.7/32"}
	blocksIPv6 = []string{"::/0", "fd00::/48", "fd00:0:0:1::/64", "fd00:0:0:1::/125", "2001:db8::/32", "2001:db8:1::/48", "2001:db8::7/128"}
	portNumber = []int32{53, 80, 443, 8080, 65535}
)

func one[T any](s Source, list []T) T { return list[s.IntN(len(list))] }

// Labels returns up to three labels.
func (s Source) Labels() map[string]string {
	l := map[string]string{}
	for _, k := range keys {
		if s.IntN(2) == 0 {
			l[k] = one(s, values)
		}
	}
	return l
}

// Namespace returns a namespace with random labels.
func (s Source) Namespace(name string) *corev1.Namespace {
	l := s.Labels()
	l[corev1.LabelMetadataName] = name
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}
}

// Pod returns a pod with random labels and named ports.
func (s Source) Pod(namespace, name, node string) *corev1.Pod {
	c := corev1.Container{Name: "c"}
	for _, n := range portNames {
		for _, proto := range protocols[:2] {
			if s.IntN(2) == 0 {
				c.Ports = append(c.Ports, corev1.ContainerPort{Name: n, Protocol: proto, ContainerPort: one(s, portNumber)})
			}
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + name), Labels: s.Labels()},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{c}},
	}
}

// Selector returns a label selector, often an empty one.
func (s Source) Selector() *metav1.LabelSelector {
	out := &metav1.LabelSelector{}
	if s.IntN(2) == 0 {
		out.MatchLabels = map[string]string{one(s, keys): one(s, values)}
	}
	for s.IntN(3) == 0 {
		e := metav1.LabelSelectorRequirement{Key: one(s, keys), Operator: one(s, []metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
		})}
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = []string{one(s, values), one(s, values)}
		}
		out.MatchExpressions = append(out.MatchExpressions, e)
	}
	return out
}

// Policy returns a policy valid for the API server.
func (s Source) Policy(namespace, name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint("uid-", s.Uint64()))}}
	p.Spec.PodSelector = *s.Selector()
	for range s.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: s.peers(), Ports: s.ports()})
	}
	for range s.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: s.peers(), Ports: s.ports()})
	}
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	switch s.IntN(4) {
	case 0:
		p.Spec.PolicyTypes = both
	case 1:
		p.Spec.PolicyTypes = both[:1]
	case 2:
		p.Spec.PolicyTypes = both[1:]
	}
	return p
}

func (s Source) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range s.IntN(4) {
		var p networkingv1.NetworkPolicyPeer
		switch s.IntN(4) {
		case 0:
			p.PodSelector = s.Selector()
		case 1:
			p.NamespaceSelector = s.Selector()
		case 2:
			p.PodSelector, p.NamespaceSelector = s.Selector(), s.Selector()
		case 3:
			p.IPBlock = s.block()
		}
		out = append(out, p)
	}
	return out
}

func (s Source) block() *networkingv1.IPBlock {
	list := blocksIPv4
	if s.IntN(2) == 0 {
		list = blocksIPv6
	}
	b := &networkingv1.IPBlock{CIDR: one(s, list)}
	for range s.IntN(3) {
		// The API server rejects an except outside of the cidr.
		if e := one(s, list); part(b.CIDR, e) {
			b.Except = append(b.Except, e)
		}
	}
	return b
}

func (s Source) ports() (out []networkingv1.NetworkPolicyPort) {
	for range s.IntN(3) {
		var p networkingv1.NetworkPolicyPort
		if proto := one(s, protocols); s.IntN(3) > 0 {
			p.Protocol = &proto
		}
		number := intstr.FromInt32(one(s, portNumber))
		switch s.IntN(5) {
		case 0:
		case 1:
			name := intstr.FromString(one(s, portNames))
			p.Port = &name
		case 2:
			end := min(number.IntVal+s.Int32N(400), 65535)
			p.Port, p.EndPort = &number, &end
		default:
			p.Port = &number
		}
		out = append(out, p)
	}
	return out
}

// Cluster returns some namespaces, pods and policies on two nodes, n1 and n2. The
// pods have no addresses.
func (s Source) Cluster() Cluster {
	var c Cluster
	for i := range 1 + s.IntN(3) {
		c.Namespaces = append(c.Namespaces, s.Namespace(fmt.Sprint("ns", i)))
	}
	for i := range 1 + s.IntN(2) {
		c.Nodes = append(c.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i+1)}})
	}
	for i := range 2 + s.IntN(5) {
		c.Pods = append(c.Pods, s.Pod(one(s, c.Namespaces).Name, fmt.Sprint("p", i), one(s, c.Nodes).Name))
	}
	for i := range s.IntN(6) {
		c.Policies = append(c.Policies, s.Policy(one(s, c.Namespaces).Name, fmt.Sprint("policy.", i)))
	}
	return c
}

// Ports returns the interesting destination ports of a protocol.
func Ports(proto corev1.Protocol) []int32 {
	if proto == corev1.ProtocolSCTP {
		return []int32{80, 8080}
	}
	return []int32{53, 80, 81, 8080, 65535}
}

// Protocols returns the protocols with ports.
func Protocols() []corev1.Protocol { return protocols }

// part reports whether cidr is a proper subset of another CIDR.
func part(of, cidr string) bool {
	o, c := netip.MustParsePrefix(of), netip.MustParsePrefix(cidr)
	return c.Bits() > o.Bits() && o.Contains(c.Addr())
}
