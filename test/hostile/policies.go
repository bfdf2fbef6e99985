package hostile

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/names"
)

// amounts are numbers of parts of an object: a few, around the limits, and above.
var amounts = []int{1, 3, 10, 30, 100, 300, 900, 999, 1000, 3000, 19_000, 20_000, 100_000}

func (s Source) amount(most int) int { return min(most, One(s, amounts...)) }

// Policies draws policies with many parts, sometimes with pods in their namespace to make
// it worse.
func Policies(s Source) Case {
	var out Case
	if s.IntN(3) == 0 {
		out.Objects = s.namingPods()
	}
	shape := s.shape()
	n := 1
	if s.IntN(4) == 0 {
		n = s.amount(30)
	}
	if s.IntN(4) == 1 {
		shape.subject = s.amount(20_000)
	}
	for i := range n {
		out.Objects = append(out.Objects, s.policy(i, shape))
	}
	out.Name = fmt.Sprintf("%d policies %s, %d pods", n, shape, len(out.Objects)-n)
	return out
}

// A shape holds the numbers of a policy's parts.
type shape struct {
	rules, peers, ports, values int
	selector, block, port       int // kinds
	ingress, egress             bool
	subject                     int // values of the podSelector
}

func (h shape) String() string {
	return fmt.Sprintf("of %d rules, %d peers (kind %d), %d ports (kind %d), %d values or exceptions (kind %d), ingress %t, egress %t, %d values of the subject",
		h.rules, h.peers, h.selector, h.ports, h.port, h.values, h.block, h.ingress, h.egress, h.subject)
}

const selectors, blocks, ports = 9, 4, 5

func (s Source) shape() shape {
	h := shape{rules: 1, peers: s.amount(20_000), ports: One(s, 0, 1, s.amount(20_000)), values: One(s, 0, 1, 2, s.amount(20_000))}
	if s.IntN(3) == 0 {
		h.rules, h.peers = h.peers, s.amount(10)
	}
	h.selector, h.block, h.port = s.IntN(selectors+1), s.IntN(blocks), s.IntN(ports)
	h.ingress = s.IntN(3) > 0
	h.egress = !h.ingress || s.IntN(2) == 0
	return h
}

// policy returns a policy of a shape, reduced until it fits.
func (s Source) policy(n int, h shape) *networkingv1.NetworkPolicy {
	for {
		if h.bytes() < MaxObject {
			if p := s.draft(n, h); Fits(p) {
				return p
			}
		}
		switch max(h.rules, h.peers, h.ports, h.values, h.subject) {
		case h.subject:
			h.subject = h.subject * 4 / 5
		case h.values:
			h.values = h.values * 4 / 5
		case h.ports:
			h.ports = h.ports * 4 / 5
		case h.peers:
			h.peers = h.peers * 4 / 5
		default:
			h.rules = h.rules * 4 / 5
		}
	}
}

// bytes returns a lower bound, about, of the size of a policy.
func (h shape) bytes() int {
	value := 5
	if h.selector == selectors { // of ipBlock
		value = []int{0, 18, 25, 0}[h.block]
	}
	size := h.rules * (h.peers*(50+value*h.values) + h.ports*35)
	if h.ingress && h.egress {
		size *= 2
	}
	return size + 60*h.subject
}

func (s Source) draft(n int, h shape) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: Tenant, Name: fmt.Sprint("hostile-", n), UID: types.UID(fmt.Sprint("uid-policy-", n))}}
	if h.subject > 0 {
		values := []string{"naming"}
		for i := range h.subject {
			values = append(values, fmt.Sprintf("%s-%d", strings.Repeat("x", 54), i))
		}
		p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}
	}
	for rule := range h.rules {
		from, at := []networkingv1.NetworkPolicyPeer{}, []networkingv1.NetworkPolicyPort{}
		for i := range h.peers {
			from = append(from, s.peer(n*1_000_000+rule*h.peers+i, h))
		}
		for i := range h.ports {
			at = append(at, portOf(rule*h.ports+i, h.port))
		}
		if h.ingress {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: from, Ports: at})
		}
		if h.egress {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: from, Ports: at})
		}
	}
	return p
}

// peer returns the peer with a number.
func (s Source) peer(i int, h shape) networkingv1.NetworkPolicyPeer {
	everywhere := &metav1.LabelSelector{}
	expression := func(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		for v := range min(h.values, 20_000) {
			if len(values) > 0 {
				values = append(values, fmt.Sprint("v", v))
			}
		}
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	own := fmt.Sprint("x", i)
	switch h.selector {
	case 0: // L1: all pods, by a label without pods
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: expression(own, metav1.LabelSelectorOpDoesNotExist)}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: expression(own, metav1.LabelSelectorOpDoesNotExist)}
	case 2: // nearly all, by labels of some pods
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: expression("app", metav1.LabelSelectorOpNotIn, fmt.Sprint("app-", i%100), own)}
	case 3:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: expression("version", metav1.LabelSelectorOpIn, "v1", own)}
	case 4:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: expression("team", metav1.LabelSelectorOpNotIn, own, "1"), PodSelector: everywhere}
	case 5:
		return networkingv1.NetworkPolicyPeer{PodSelector: expression(own, metav1.LabelSelectorOpDoesNotExist)}
	case 6:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: expression("statefulset.kubernetes.io/pod-name", metav1.LabelSelectorOpNotIn, fmt.Sprint("pod-", i*10))}
	case 7:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere}
	case 8:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: expression(corev1.LabelMetadataName, metav1.LabelSelectorOpNotIn, fmt.Sprint("namespace-", i%50), own), PodSelector: expression("app", metav1.LabelSelectorOpExists)}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: block(i, h)}
}

// block returns the subnet with a number, with exceptions.
func block(i int, h shape) *networkingv1.IPBlock {
	var b networkingv1.IPBlock
	except := min(h.values, 20_000)
	switch h.block {
	case 0:
		b.CIDR = fmt.Sprintf("10.%d.%d.%d/28", i/4096%256, i/16%256, i%16*16)
		except = 0
	case 1:
		b.CIDR = "0.0.0.0/0"
		for e := range except {
			b.Except = append(b.Except, fmt.Sprintf("%d.%d.%d.%d/32", 1+e*7%200, e/256%256, e%256, i%256))
		}
	case 2:
		b.CIDR = "::/0"
		for e := range except {
			b.Except = append(b.Except, fmt.Sprintf("%x:%x::%x/128", 1+e*37%65000, e, i%65536))
		}
	default:
		b.CIDR = fmt.Sprintf("2001:db8:%x:%x::/64", i/65536, i%65536)
	}
	return &b
}

func portOf(i, kind int) networkingv1.NetworkPolicyPort {
	proto := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[i%3]
	p := networkingv1.NetworkPolicyPort{Protocol: &proto}
	number, end := intstr.FromInt32(int32(1+i*3%65000)), int32(2+i*3%65000)
	switch kind {
	case 0:
		p.Port = &number
	case 1:
		p.Port, p.EndPort = &number, &end
	case 2: // L2
		tcp, name := corev1.ProtocolTCP, intstr.FromString(fmt.Sprint("p", i))
		p.Protocol, p.Port = &tcp, &name
	case 3:
		name := intstr.FromString([]string{"http", "metrics"}[i%2])
		p.Port = &name
	}
	return p
}

// namingPods returns pods of the tenant with different numbers for the same port names.
func (s Source) namingPods() (out []any) {
	pods, ports := min(60, s.amount(1000)), min(900, s.amount(1000))
	for i := range pods {
		p := Pod(Tenant, fmt.Sprint("naming-", i), i, 100)
		p.Labels = map[string]string{"app": "naming", fmt.Sprint("x", i): "here"}
		for n := range ports {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{Name: fmt.Sprint("p", n), ContainerPort: int32(1 + (n*61+i*1009)%65000), Protocol: corev1.ProtocolTCP})
		}
		out = append(out, p)
	}
	return out
}

// Pods draws pods with many labels, annotations or ports, or many pods with the same hostPorts.
func Pods(s Source) Case {
	n := s.amount(100_000)
	kind := s.IntN(7)
	if kind == 6 {
		return s.rivals(min(n, 100))
	}
	p := Pod(Tenant, "hostile", 0, 100)
	for {
		s.swell(p, n, kind)
		if Fits(p) {
			break
		}
		n = n * 2 / 3
	}
	return Case{Name: fmt.Sprintf("a pod with %d of kind %d", n, kind), Objects: []any{s.policy(0, shape{rules: 1, peers: 30, ports: 30, selector: 2, port: 2, ingress: true, egress: true}), p}}
}

func (s Source) swell(p *corev1.Pod, n, kind int) {
	c := &p.Spec.Containers[0]
	p.Labels, p.Annotations, c.Ports = map[string]string{"app": "app-1"}, map[string]string{}, nil
	if kind == 3 {
		p.Annotations[names.Annotation] = `{"ip_address":"` + strings.Repeat("10.0.0.9/24,", n) + `"}`
	}
	if kind == 5 { // a mirror of a static pod, with fields that only the watcher and the kubelet write
		p.Annotations[corev1.MirrorPodAnnotationKey], p.Annotations[names.AnnotationUID] = strings.Repeat("x", n), string(p.UID)
		p.Annotations[names.Annotation] = `{"ip_address":"10.0.0.1/24","mac_address":"00:00:00:00:00:01","gateway_ip":"10.0.0.1"}`
		p.Annotations["kubernetes.io/ingress-bandwidth"] = strings.Repeat("9", n)
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00:0:0:1::1"}}
	}
	for i := range n {
		switch kind {
		case 0:
			p.Labels[fmt.Sprint("x", i)] = "v"
		case 1:
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(1 + i%65535), Protocol: corev1.ProtocolTCP})
		case 2:
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: int32(1 + i%65535), Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[i/65535%3]})
		case 4:
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(1 + i%65535), HostPort: int32(1 + i%65535), Protocol: corev1.ProtocolTCP})
		}
	}
}

// rivals returns pods of one node with the same hostPorts. The oldest one is deleted and created again.
func (s Source) rivals(pods int) Case {
	out := Case{Name: fmt.Sprintf("%d pods with the same 1000 hostPorts", pods)}
	for i := range pods {
		p := Pod(Tenant, fmt.Sprint("rival-", i), 0, 100)
		p.CreationTimestamp = metav1.Unix(int64(100+i), 0)
		for n := range 1000 {
			port := corev1.ContainerPort{ContainerPort: int32(1 + n), HostPort: int32(1000 + n), Protocol: corev1.ProtocolTCP}
			port.HostIP = One(s, "", "", "0.0.0.0", "192.100.0.1")
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, port)
		}
		out.Objects = append(out.Objects, p)
	}
	gone := out.Objects[0].(*corev1.Pod).DeepCopy()
	gone.Status.Phase = corev1.PodFailed
	out.Objects = append(out.Objects, gone, out.Objects[0])
	return out
}

// Namespaces draws namespaces with many labels or odd annotations, beside a policy that selects them.
func Namespaces(s Source) Case {
	n := s.amount(20_000)
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hostile", Labels: map[string]string{"team": "0"}, Annotations: map[string]string{}}}
	for i := range n {
		o.Labels[fmt.Sprint("x", i)] = "v"
	}
	o.Annotations[names.ACLLogging] = One(s, "", `{"deny": "alert"}`, strings.Repeat("x", 200_000), `{"deny": "`+strings.Repeat("x", 200_000)+`"}`)
	return Case{Name: fmt.Sprintf("a namespace with %d labels", n), Objects: []any{s.policy(0, shape{rules: 1, peers: s.amount(1000), selector: One(s, 0, 4, 8), ingress: true}), o}}
}
