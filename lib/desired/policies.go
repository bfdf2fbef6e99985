package desired

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// putLabels records the labels and ports of a pod with a logical port in the policies.
func (w *World) putLabels(o *corev1.Pod, p pod.Pod) []nb.Unit {
	if !p.NeedsPort {
		return w.policies.RemovePod(p.Key)
	}
	return w.policies.PutPod(p.Key, o.Labels, policy.Ports(o))
}

// putPolicies applies a change of policies. The first policy adds ACLs to all nodes, and the end of the last one
// removes them.
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

// replaceNamespaces replaces all Namespaces.
func (w *World) replaceNamespaces(objs []any) (touched []nb.Unit) {
	here := map[string]bool{}
	for _, o := range objs {
		n := o.(*corev1.Namespace)
		here[n.Name] = true
		touched = append(touched, w.Put(n)...)
	}
	for _, name := range w.policies.Namespaces() {
		if !here[name] {
			touched = append(touched, w.policies.RemoveNamespace(name)...)
		}
	}
	return touched
}

// replacePolicies replaces all NetworkPolicies.
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

// ownAddrs are all addresses of a node for the pods of its switch: those of its management port, and its own. nil if
// the topology has no such node.
func (w *World) ownAddrs(sw string) []netip.Addr {
	subnets, ok := w.cluster.Nodes[sw]
	if !ok {
		return nil
	}
	return append(addrs(topology.ManagementPort(subnets).IPs), w.hosts[sw]...)
}

// nodePolicyRows are the ACLs of a node's switch.
func (w *World) nodePolicyRows(sw string) []nb.Row {
	subnets, ok := w.cluster.Nodes[sw]
	if !ok {
		return nil
	}
	return policy.Node{
		Switch: sw, Management: addrs(topology.ManagementPort(subnets).IPs), Own: w.hosts[sw],
		Inside: slices.Concat(w.cluster.Subnets, w.cluster.Join), Policies: w.policies.Any(),
	}.Rows()
}

// guardRows returns the rows of the guard.
func (w *World) guardRows() []nb.Row {
	return policy.GuardRows(w.cluster.Subnets, w.cluster.NodeNames())
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
	if len(w.cluster.Nodes) > 0 {
		us = append(us, policy.GuardUnit)
	}
	for name := range w.cluster.Nodes {
		us = append(us, policy.NodeUnit(name))
	}
	return us
}

// Policy returns the policy of unit u.
func (w *World) Policy(u nb.Unit) (policy.Policy, bool) { return w.policies.Policy(u) }

// ShowPolicies lists the policies of the pod of unit u, and their rules.
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
