// Package policymodel is a reference model of the NetworkPolicy API, written after its
// text, and a generator of random clusters for it. It is slow and simple, and
// shares no code with the product, so agreement of both is strong evidence.
package policymodel

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A Cluster is the complete input of the model.
type Cluster struct {
	Namespaces []*corev1.Namespace
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod // without hostNetwork pods; addresses are in status.podIPs
	Policies   []*networkingv1.NetworkPolicy
}

// A Connection is a connection between two addresses.
type Connection struct {
	From, To netip.Addr
	Proto    corev1.Protocol // "" for ICMP
	Port     int32
}

// Allowed reports whether the policies allow the first packet of a connection.
func (c Cluster) Allowed(conn Connection) bool {
	from, to := c.podAt(conn.From), c.podAt(conn.To)
	if from != nil && from == to {
		return true // "A pod cannot block access to itself"
	}
	if to != nil && c.onNodeOf(to, conn.From) || from != nil && c.onNodeOf(from, conn.To) {
		return true // "traffic to and from the node where a Pod is running is always allowed"
	}
	return c.egress(from, to, conn) && c.ingress(from, to, conn)
}

func (c Cluster) podAt(a netip.Addr) *corev1.Pod {
	for _, p := range c.Pods {
		for _, ip := range p.Status.PodIPs {
			if netip.MustParseAddr(ip.IP) == a {
				return p
			}
		}
	}
	return nil
}

// onNodeOf reports whether a is an address of the node of p.
func (c Cluster) onNodeOf(p *corev1.Pod, a netip.Addr) bool {
	for _, n := range c.Nodes {
		for _, na := range n.Status.Addresses {
			if n.Name == p.Spec.NodeName && netip.MustParseAddr(na.Address) == a {
				return true
			}
		}
	}
	return false
}

// egress: "If no policyTypes are specified on a NetworkPolicy then by default
// Ingress will always be set and Egress will be set if the NetworkPolicy has any
// egress rules." "A pod is isolated for egress if there is any NetworkPolicy that
// both selects the pod and has "Egress" in its policyTypes."
func (c Cluster) egress(from, to *corev1.Pod, conn Connection) bool {
	if from == nil {
		return true
	}
	isolated := false
	for _, p := range c.Policies {
		applies := slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || len(p.Spec.PolicyTypes) == 0 && len(p.Spec.Egress) > 0
		if p.Namespace != from.Namespace || !selected(&p.Spec.PodSelector, from.Labels) || !applies {
			continue
		}
		isolated = true
		for _, rule := range p.Spec.Egress {
			if c.side(p, rule.To, rule.Ports, to, to, conn.To, conn) {
				return true
			}
		}
	}
	return !isolated
}

func (c Cluster) ingress(from, to *corev1.Pod, conn Connection) bool {
	if to == nil {
		return true
	}
	isolated := false
	for _, p := range c.Policies {
		applies := slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || len(p.Spec.PolicyTypes) == 0
		if p.Namespace != to.Namespace || !selected(&p.Spec.PodSelector, to.Labels) || !applies {
			continue
		}
		isolated = true
		for _, rule := range p.Spec.Ingress {
			if c.side(p, rule.From, rule.Ports, from, to, conn.From, conn) {
				return true
			}
		}
	}
	return !isolated
}

// side judges one rule: "items in this list are combined using a logical OR; if
// this field is empty or missing, this rule matches all". other is the pod at the
// other end (the peer), target the connection's destination pod.
func (c Cluster) side(p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, other, target *corev1.Pod, addr netip.Addr, conn Connection) bool {
	if len(peers) == 0 {
		return onPort(ports, target, conn)
	}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			// An ipBlock is not a pod, so it has no named ports.
			holder := target
			if other == target {
				holder = nil
			}
			if within(peer.IPBlock, addr) && onPort(ports, holder, conn) {
				return true
			}
			continue
		}
		if other != nil && c.isPeer(p, peer, other) && onPort(ports, target, conn) {
			return true
		}
	}
	return false
}

// isPeer: "If PodSelector is also set, then the NetworkPolicyPeer as a whole
// selects the pods matching PodSelector in the namespaces selected by
// NamespaceSelector. Otherwise it selects all pods in the namespaces selected by
// NamespaceSelector." Without NamespaceSelector, pods of the policy's own namespace.
func (c Cluster) isPeer(p *networkingv1.NetworkPolicy, peer networkingv1.NetworkPolicyPeer, other *corev1.Pod) bool {
	if peer.NamespaceSelector == nil {
		return other.Namespace == p.Namespace && selected(peer.PodSelector, other.Labels)
	}
	for _, n := range c.Namespaces {
		if n.Name == other.Namespace && selected(peer.NamespaceSelector, n.Labels) {
			return peer.PodSelector == nil || selected(peer.PodSelector, other.Labels)
		}
	}
	return false
}

func selected(s *metav1.LabelSelector, l map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(l))
}

// within: "Except is a slice of CIDRs that should not be included".
func within(b *networkingv1.IPBlock, a netip.Addr) bool {
	for _, e := range b.Except {
		if netip.MustParsePrefix(e).Contains(a) {
			return false
		}
	}
	return netip.MustParsePrefix(b.CIDR).Contains(a)
}

// onPort: "If this field is empty or missing, this rule matches all ports".
func onPort(ports []networkingv1.NetworkPolicyPort, target *corev1.Pod, conn Connection) bool {
	for _, p := range ports {
		proto := corev1.ProtocolTCP // "If not specified, this field defaults to TCP."
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		if proto != conn.Proto {
			continue
		}
		switch {
		case p.Port == nil: // "If this field is not provided, this matches all port names and numbers."
			return true
		case p.Port.Type == intstr.String:
			if target != nil && hasPort(target, p.Port.StrVal, conn) {
				return true
			}
		case p.EndPort != nil:
			if p.Port.IntVal <= conn.Port && conn.Port <= *p.EndPort {
				return true
			}
		case p.Port.IntVal == conn.Port:
			return true
		}
	}
	return len(ports) == 0
}

// hasPort reports whether the pod's port with this name and protocol is the
// connection's port.
func hasPort(p *corev1.Pod, name string, conn Connection) bool {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name && port.Protocol == conn.Proto {
				return port.ContainerPort == conn.Port
			}
		}
	}
	return false
}
