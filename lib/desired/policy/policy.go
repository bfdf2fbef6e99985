// Package policy turns NetworkPolicies, namespaces and the labels of pods into
// port groups and ACLs, and tells whether they allow a connection.
//
// Every distinct selector is one Port_Group, used for subjects of policies and for
// peers of rules alike. OVN makes address sets of both families from it, so a pod
// costs one reference for each of its groups.
//
// An Index joins five parts with a state of their own: spaces (namespaces, and the scopes of
// selectors), a census (numbers of pods by label), groups (port groups with their members and
// named ports), a planner (the cost of a policy, and the limits) and policies (plans bound to
// groups). Parts call only those named before them. A count reports the policies that depend on
// it in pending, and policies settles these at the end of each change.
package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Key names a NetworkPolicy.
type Key struct{ Namespace, Name string }

// String is the key as Kubernetes writes it: "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Unit returns the owner of the policy's rows.
func (k Key) Unit() nb.Unit { return nb.Unit(UnitPrefix + k.String()) }

// UnitPrefix starts the units of policies.
const UnitPrefix = "policy/"

// A Policy holds the relevant fields of a NetworkPolicy.
type Policy struct {
	Key
	UID string
	// Problems are the parts that cannot be honoured: each names the field, its
	// value and a valid one. A rule with a problem allows nothing.
	Problems []string

	created  int64 // Unix time
	subject  labelSelector
	isolates [2]bool // by direction
	rules    []rule
}

// A direction is a connection's, seen from the policy's subject.
type direction int

const (
	ingress direction = iota
	egress
)

func (d direction) String() string { return [...]string{"ingress", "egress"}[d] }

// column is the direction as a column of ACLs has it.
func (d direction) column() nbdb.ACLDirection {
	return [...]nbdb.ACLDirection{ingress: nbdb.ACLDirectionToLport, egress: nbdb.ACLDirectionFromLport}[d]
}

// A rule allows connections: those with one of the peers, at one of the ports.
type rule struct {
	dir   direction
	index int // among the rules of its direction in the policy
	// anyone: the rule names no peers and means all.
	anyone bool
	peers  []peer
	blocks []netip.Prefix // subnets of the ipBlocks without exceptions
	// anything: the rule names no ports and means all protocols.
	anything bool
	ports    []portRange
	named    []namedPort
}

// A peer is a selector of pods, in the policy's namespace unless it selects
// namespaces.
type peer struct {
	everywhere bool // selects namespaces
	namespaces labelSelector
	pods       labelSelector
}

// A portRange is a range of destination ports, all of them from 0 to 65535.
type portRange struct {
	proto    corev1.Protocol
	from, to uint16
}

// A namedPort is a port of containers: its number is the pod's own.
type namedPort struct {
	proto corev1.Protocol
	name  string
}

// New takes the relevant fields from p. Fields refused by API servers, or known only
// to newer ones, become problems.
func New(p *networkingv1.NetworkPolicy) Policy {
	out := Policy{Key: Key{p.Namespace, p.Name}, UID: string(p.UID), created: p.CreationTimestamp.Unix()}
	subject, err := newSubject(&p.Spec.PodSelector)
	if err != nil {
		// The subject is unknown: all pods are isolated, and nothing is allowed.
		out.problem("spec.podSelector: %v: all pods of the namespace are isolated until it is corrected", err)
	}
	out.subject = subject
	out.types(p.Spec)
	if err != nil {
		return out
	}
	if why := tooLarge(p.Spec); why != "" {
		out.problem("%s", why)
		return out
	}
	for i, r := range p.Spec.Ingress {
		out.rule(ingress, i, r.From, r.Ports)
	}
	for i, r := range p.Spec.Egress {
		out.rule(egress, i, r.To, r.Ports)
	}
	blocks := 0
	for _, r := range out.rules {
		blocks += len(r.blocks)
	}
	if blocks > maxValues {
		out.problem("%s", valuesProblem(blocks))
		out.rules = nil
	}
	return out
}

// newSubject returns the selector of a policy's subject.
func newSubject(s *metav1.LabelSelector) (labelSelector, error) {
	if n := selectorValues(s); n > maxValues {
		return labelSelector{}, fmt.Errorf("%d labels and values are more than %d", n, maxValues)
	}
	return newSelector(s)
}

func (p *Policy) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

// types sets the isolated directions: those of policyTypes, else
// ingress, and egress if there are rules for it.
func (p *Policy) types(spec networkingv1.NetworkPolicySpec) {
	if len(spec.PolicyTypes) == 0 {
		p.isolates = [2]bool{ingress: true, egress: len(spec.Egress) > 0}
		return
	}
	for i, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			p.isolates[ingress] = true
		case networkingv1.PolicyTypeEgress:
			p.isolates[egress] = true
		default:
			p.problem("spec.policyTypes[%d]: %q is neither Ingress nor Egress: both are isolated", i, t)
			p.isolates = [2]bool{true, true}
		}
	}
}

// rule adds one rule, unless it has problems or its direction is not isolated.
func (p *Policy) rule(dir direction, index int, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	before := len(p.Problems)
	r := rule{dir: dir, index: index, anyone: len(peers) == 0, anything: len(ports) == 0}
	for i, from := range peers {
		if err := r.peer(from); err != nil {
			p.problem("spec.%s[%d].%s[%d].%v", dir, index, [...]string{"from", "to"}[dir], i, err)
		}
	}
	for i, port := range ports {
		if err := r.port(port); err != nil {
			p.problem("spec.%s[%d].ports[%d].%v", dir, index, i, err)
		}
	}
	if len(p.Problems) == before && p.isolates[dir] {
		slices.SortFunc(r.blocks, netip.Prefix.Compare)
		r.blocks = slices.Compact(r.blocks)
		r.ports = merged(r.ports)
		slices.SortFunc(r.named, compareNamed)
		r.named = slices.Compact(r.named)
		p.rules = append(p.rules, r)
		if dir == egress && len(r.blocks) > 0 && len(r.named) > 0 {
			p.problem("spec.%s[%d].ports: named port %q allows nothing to an ipBlock, because only pods of selectors have named ports: give its number", dir, index, r.named[0].name)
		}
	}
}

func (r *rule) peer(from networkingv1.NetworkPolicyPeer) error {
	selects := from.PodSelector != nil || from.NamespaceSelector != nil
	switch {
	case from.IPBlock != nil && selects:
		return fmt.Errorf("ipBlock: cannot stand beside selectors: make two entries")
	case from.IPBlock != nil:
		blocks, err := parseBlock(from.IPBlock)
		r.blocks = append(r.blocks, blocks...)
		return err
	case !selects:
		return fmt.Errorf("podSelector: one of podSelector, namespaceSelector and ipBlock is required")
	}
	var out peer
	var err error
	if from.NamespaceSelector != nil {
		out.everywhere = true
		if out.namespaces, err = newSelector(from.NamespaceSelector); err != nil {
			return fmt.Errorf("namespaceSelector: %w", err)
		}
	}
	if from.PodSelector != nil {
		if out.pods, err = newSelector(from.PodSelector); err != nil {
			return fmt.Errorf("podSelector: %w", err)
		}
	}
	r.peers = append(r.peers, out)
	return nil
}

func (r *rule) port(p networkingv1.NetworkPolicyPort) error {
	proto := corev1.ProtocolTCP
	if p.Protocol != nil {
		proto = *p.Protocol
	}
	if keyword(proto) == "" {
		return fmt.Errorf("protocol: %q is not supported: use TCP, UDP or SCTP", proto)
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		return fmt.Errorf("endPort: %d has no port that it is the end of: set port", *p.EndPort)
	case p.Port == nil:
		r.ports = append(r.ports, portRange{proto, 0, 65535})
		return nil
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			return fmt.Errorf("endPort: %d cannot follow the name %q: set port to a number", *p.EndPort, p.Port.StrVal)
		}
		if problems := validation.IsValidPortName(p.Port.StrVal); len(problems) > 0 {
			return fmt.Errorf("port: %q is no name of a port: %s", p.Port.StrVal, problems[0])
		}
		r.named = append(r.named, namedPort{proto, p.Port.StrVal})
		return nil
	}
	first, last := p.Port.IntVal, p.Port.IntVal
	if first < 1 || first > 65535 {
		return fmt.Errorf("port: %d is no port: give 1 to 65535", first)
	}
	if p.EndPort != nil {
		if last = *p.EndPort; last < first || last > 65535 {
			return fmt.Errorf("endPort: %d is below port or no port: give %d to 65535", last, first)
		}
	}
	r.ports = append(r.ports, portRange{proto, uint16(first), uint16(last)})
	return nil
}

// keyword returns OVN's name of a protocol in matches, or "".
func keyword(proto corev1.Protocol) string {
	switch proto {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return strings.ToLower(string(proto))
	}
	return ""
}

// equal reports whether both mean the same: the UID is ignored.
func (p Policy) equal(q Policy) bool {
	p.UID, q.UID = "", ""
	return reflect.DeepEqual(p, q)
}

// A Port is a named port of a pod's containers.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Number   uint16
}

// Ports lists the named ports of a pod, each name and protocol once: of several
// containers with the same, the first one counts, as for Services.
func Ports(p *corev1.Pod) []Port {
	var out []Port
	known := map[namedPort]bool{}
	add := func(c corev1.Container) {
		for _, p := range c.Ports {
			proto := p.Protocol
			if proto == "" {
				proto = corev1.ProtocolTCP
			}
			name := namedPort{proto, p.Name}
			if p.Name != "" && !known[name] && p.ContainerPort > 0 && p.ContainerPort <= 65535 {
				known[name] = true
				out = append(out, Port{p.Name, proto, uint16(p.ContainerPort)})
			}
		}
	}
	for _, c := range p.Spec.Containers {
		add(c)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}
