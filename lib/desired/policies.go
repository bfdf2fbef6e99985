package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// putLabels tells the policies of a pod that has a logical port.
func (w *World) putLabels(o *corev1.Pod, p pod.Pod) []nb.Unit {
	if !p.NeedsPort {
		return w.policies.RemovePod(p.Key)
	}
	return w.policies.PutPod(p.Key, o.Labels, policy.Ports(o))
}

// putPolicies records what change says of policies. The nodes' own ACLs are
// there while there is any policy.
func (w *World) putPolicies(change func() []nb.Unit) []nb.Unit {
	before := w.policies.Any()
	touched := change()
	if w.policies.Any() != before {
		for name := range w.cluster.Nodes {
			touched = append(touched, policy.NodeUnit(name))
		}
	}
	return touched
}

func (w *World) putPolicy(o *networkingv1.NetworkPolicy) []nb.Unit {
	return w.putPolicies(func() []nb.Unit { return w.policies.PutPolicy(policy.New(o)) })
}

func (w *World) removePolicy(k policy.Key) []nb.Unit {
	return w.putPolicies(func() []nb.Unit { return w.policies.RemovePolicy(k) })
}

// replaceNamespaces records all that there are.
func (w *World) replaceNamespaces(objs []any) (touched []nb.Unit) {
	here := map[string]bool{}
	for _, o := range objs {
		n := o.(*corev1.Namespace)
		here[n.Name] = true
		touched = append(touched, w.policies.PutNamespace(n)...)
	}
	for _, name := range w.policies.Namespaces() {
		if !here[name] {
			touched = append(touched, w.policies.RemoveNamespace(name)...)
		}
	}
	return touched
}

// replacePolicies records all that there are.
func (w *World) replacePolicies(objs []any) (touched []nb.Unit) {
	here := map[policy.Key]bool{}
	for _, o := range objs {
		p := o.(*networkingv1.NetworkPolicy)
		here[policy.Key{Namespace: p.Namespace, Name: p.Name}] = true
		touched = append(touched, w.putPolicy(p)...)
	}
	for _, k := range w.policies.Keys() {
		if !here[k] {
			touched = append(touched, w.removePolicy(k)...)
		}
	}
	return touched
}

// putHostAddrs records the addresses of a node, which its pods always reach. nil
// means that they are not known. What touches other units than those of the node
// is left to lookAround.
func (w *World) putHostAddrs(node string, list []corev1.NodeAddress) []nb.Unit {
	sw := names.NodeSwitch(node)
	now := hostAddrs(list)
	if slices.Equal(w.hosts[sw], now) {
		return nil
	}
	if w.hosts[sw] = now; now == nil {
		delete(w.hosts, sw)
	}
	return append(w.chassisUnits(sw), policy.NodeUnit(sw), topology.HostUnit(sw))
}

// hostAddrs are the addresses of a Node, sorted.
func hostAddrs(list []corev1.NodeAddress) (out []netip.Addr) {
	for _, a := range list {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, ip.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// ownAddrs are all addresses by which the pods of a switch know their node: those
// of its management port, and its own. nil if the topology does not have it.
func (w *World) ownAddrs(sw string) []netip.Addr {
	subnets, ok := w.cluster.Nodes[sw]
	if !ok {
		return nil
	}
	return append(addrs(topology.ManagementPort(subnets).IPs), w.hosts[sw]...)
}

// nodePolicyRows are the ACLs of a node's switch.
func (w *World) nodePolicyRows(sw string) []nb.Row {
	own := w.ownAddrs(sw)
	if own == nil || !w.policies.Any() {
		return nil
	}
	return policy.NodeRows(sw, own)
}

// policyRows are the rows of a policy, or of a group of pods.
func (w *World) policyRows(u nb.Unit) ([]nb.Row, error) {
	rows, problem := w.policies.Rows(u)
	if problem != "" {
		return rows, &Problem{"NetworkPolicyNotHonoured", problem}
	}
	return rows, nil
}

// policyUnits lists the units of policies, and the nodes' own.
func (w *World) policyUnits() []nb.Unit {
	us := w.policies.Units()
	if w.policies.Any() {
		for name := range w.cluster.Nodes {
			us = append(us, policy.NodeUnit(name))
		}
	}
	return us
}

// Policy returns the policy that is unit u.
func (w *World) Policy(u nb.Unit) (policy.Policy, bool) { return w.policies.Policy(u) }

// ShowPolicies says which policies apply to the pod that is unit u, and what they
// allow.
func (w *World) ShowPolicies(u nb.Unit) (string, error) {
	k, _ := pod.KeyOf(u)
	text, ok := w.policies.Show(k)
	if !ok {
		return "", noPod(k)
	}
	return text, nil
}

func noPod(k pod.Key) error {
	return fmt.Errorf("%q is no pod that needs a port: write NAMESPACE/NAME of a scheduled pod outside the host's network", k)
}

// Check says whether policies let a connection pass, and why, on one line for
// each address family in which it is possible.
func (w *World) Check(q policy.Query) (string, error) {
	from, err := w.party(q.From)
	if err != nil {
		return "", err
	}
	to, err := w.party(q.To)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range from {
		for _, t := range to {
			if f.Addr.Is4() == t.Addr.Is4() {
				c := policy.Connection{From: f, To: t, Proto: q.Proto, Port: q.Port}
				allowed, reason := w.judge(c)
				verdict := "deny"
				if allowed {
					verdict = "allow"
				}
				fmt.Fprintf(&b, "%s %s → %s: %s\n", verdict, f.Addr, t.Addr, reason)
			}
		}
	}
	if b.Len() == 0 {
		return "", errFamilies
	}
	return b.String(), nil
}

var errFamilies = errors.New("the two have no addresses of one family")

// judge says whether a connection may take place.
func (w *World) judge(c policy.Connection) (bool, string) {
	switch {
	case c.From.Pod == c.To.Pod && c.From.Pod != pod.Key{}:
		return true, "a pod always reaches itself"
	case w.isOwnNode(c.From.Addr, c.To.Pod), w.isOwnNode(c.To.Addr, c.From.Pod):
		return true, "a pod and its own node always reach each other"
	}
	from, to := w.policies.Check(c)
	return from.Allowed && to.Allowed, from.Reason + "; " + to.Reason
}

// isOwnNode reports whether a is an address of the node of pod k.
func (w *World) isOwnNode(a netip.Addr, k pod.Key) bool {
	p := w.pods[k]
	return p != nil && slices.Contains(w.ownAddrs(names.NodeSwitch(p.Node)), a)
}

// party finds the addresses of a pod, or the pod of an address.
func (w *World) party(p policy.Party) ([]policy.Endpoint, error) {
	if p.Addr.IsValid() {
		return []policy.Endpoint{{Pod: w.holder(p.Addr), Addr: p.Addr}}, nil
	}
	s := w.pods[p.Pod]
	if s == nil {
		return nil, fmt.Errorf("%w; of others, give the address", noPod(p.Pod))
	}
	var out []policy.Endpoint
	for _, a := range addrs(s.addrs.IPs) {
		out = append(out, policy.Endpoint{Pod: p.Pod, Addr: a})
	}
	if out == nil {
		return nil, fmt.Errorf("pod %s has no address yet", p.Pod)
	}
	return out, nil
}

// holder is the pod that has an address, zero if none has.
func (w *World) holder(a netip.Addr) pod.Key {
	for k, p := range w.pods {
		if slices.ContainsFunc(p.addrs.IPs, func(ip netip.Prefix) bool { return ip.Addr() == a }) {
			return k
		}
	}
	return pod.Key{}
}
